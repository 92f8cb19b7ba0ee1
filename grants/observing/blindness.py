"""Whether a catalog shows its reader the grants of others: it does not report that it hides them."""

from grants.model import MANAGE, Securable, folded
from grants.observing.resolver import Resolver
from pipeline.base.errors import Refused


def blindness(resolver: Resolver, where: Securable) -> str | None:
    """Return why the reader of a snapshot may have seen only its own grants on a securable; None: it saw all."""
    observed = resolver.observed
    if not observed.reader:
        return None
    closure = resolver.closure(observed.reader)
    for each in where.chain():
        owner = observed.owners.get(each)
        if owner is None and each.type != "table":  # unknown counts for it: open-source servers report none
            return None
        if owner is not None and folded(owner) in closure:
            return None
        if any(MANAGE in (resolver.directly(who, each) or ()) for who in closure):
            return None
    return (
        f"{observed.reader} (turnout's own principal) neither owns {where.full_name} or what it lies in, nor holds "
        "MANAGE there: unless it is the metastore admin, it sees only its own grants. Give it MANAGE on the schema."
    )


def require_shown(resolver: Resolver, where: Securable, who: str, privilege: str) -> None:
    """Check that a grant of turnout's to a folded name that a snapshot does not show is gone.

    Raises:
        Refused: the snapshot's reader may not see it.
    """
    blindly = blindness(resolver, where)
    if blindly is not None:
        raise Refused(
            f"{privilege} of {resolver.name(who)} on {where.full_name} was granted by turnout and is not shown, which "
            f"does not mean that it is gone. {blindly}"
        )
