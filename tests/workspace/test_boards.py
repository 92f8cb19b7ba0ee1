"""Guards warehouses, alerts and dashboards of the stand-in: kept as they were sent, or refused."""

import json

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import InvalidParameterValue, NotFound, PermissionDenied, ResourceConflict
from databricks.sdk.service.dashboards import Dashboard
from databricks.sdk.service.sql import (
    AlertV2,
    AlertV2Evaluation,
    AlertV2Operand,
    AlertV2OperandColumn,
    AlertV2OperandValue,
    ComparisonOperator,
    CronSchedule,
)

from tests.workspace.fixtures import client
from tests.workspace.running import StandIn
from tests.workspace.server.boards import WAREHOUSE


def an_alert(name: str) -> AlertV2:
    evaluation = AlertV2Evaluation(
        source=AlertV2OperandColumn(name="lag"),
        comparison_operator=ComparisonOperator.GREATER_THAN,
        threshold=AlertV2Operand(value=AlertV2OperandValue(double_value=60)),
    )
    return AlertV2(name, "SELECT 1", WAREHOUSE, evaluation, CronSchedule("0 * * * * ?", "UTC"))


def test_there_is_a_warehouse(workspace: StandIn, admin: WorkspaceClient) -> None:
    """Everybody finds the warehouse that a workspace begins with; another is its maker's."""
    user = client(workspace, workspace.add_principal("boards@turnout.example", "user"))
    assert [each.id for each in user.warehouses.list()] == [WAREHOUSE]
    second = str(admin.warehouses.create(name="second").bind()["id"])
    assert {each.id for each in admin.warehouses.list()} == {WAREHOUSE, second}
    assert [each.id for each in user.warehouses.list()] == [WAREHOUSE]


def test_an_alert_is_kept(workspace: StandIn, admin: WorkspaceClient) -> None:
    """An alert is made, changed by its mask, listed and put into the trash; missing fields are refused."""
    made = admin.alerts_v2.create_alert(an_alert("lag"))
    assert made.id is not None
    changed = an_alert("other")
    changed.query_text = "SELECT 2"
    admin.alerts_v2.update_alert(made.id, changed, update_mask="query_text")
    read = admin.alerts_v2.get_alert(made.id)
    assert (read.display_name, read.query_text) == ("lag", "SELECT 2")
    assert [each.id for each in admin.alerts_v2.list_alerts()] == [made.id]
    stranger = client(workspace, workspace.add_principal("alerted"))
    with pytest.raises(PermissionDenied):
        stranger.alerts_v2.trash_alert(made.id)
    admin.alerts_v2.trash_alert(made.id)
    with pytest.raises(NotFound):
        admin.alerts_v2.get_alert(made.id)
    wrong = an_alert("wrong")
    wrong.query_text = ""
    with pytest.raises(InvalidParameterValue, match="query_text"):
        admin.alerts_v2.create_alert(wrong)


def test_a_dashboard_is_changed_by_its_etag(admin: WorkspaceClient) -> None:
    """A change with an old etag is refused; the published dashboard is another thing than the draft."""
    content = json.dumps({"pages": []})
    made = admin.lakeview.create(
        Dashboard(display_name="turnout", serialized_dashboard=content, warehouse_id=WAREHOUSE)
    )
    assert made.dashboard_id is not None
    with pytest.raises(ResourceConflict):
        admin.lakeview.create(Dashboard(display_name="turnout", serialized_dashboard=content))
    admin.lakeview.update(made.dashboard_id, Dashboard(display_name="turnout 2", etag=made.etag))
    with pytest.raises(ResourceConflict):
        admin.lakeview.update(made.dashboard_id, Dashboard(display_name="turnout 3", etag=made.etag))
    with pytest.raises(NotFound):
        admin.lakeview.get_published(made.dashboard_id)
    admin.lakeview.publish(made.dashboard_id, embed_credentials=False)
    assert admin.lakeview.get_published(made.dashboard_id).embed_credentials is False
    admin.lakeview.trash(made.dashboard_id)
    assert list(admin.lakeview.list()) == []
    with pytest.raises(InvalidParameterValue, match="JSON"):
        admin.lakeview.create(Dashboard(display_name="bad", serialized_dashboard="{"))
