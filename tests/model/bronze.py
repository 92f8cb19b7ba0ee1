"""Ingest: batches of the source become commits of bronze (law L1)."""

from tests.model.state import Ingest, State
from tests.model.world import Next, World, last_seqs_of


def land(world: World, state: State) -> Next:
    """One micro-batch becomes one commit of bronze; a batch that is there already is skipped (law L1)."""
    ingest, scenario = state.ingest, world.scenario
    batch = ingest.passed + 1
    if ingest.last_seqs is None or batch > len(scenario.batches) or ingest.reported < len(state.bronze):
        return
    in_bronze = max((commit.batch for commit in state.bronze), default=0)
    if ingest.landed == batch or (in_bronze >= batch and world.rules.bronze_skips_landed_batch):
        return
    seq = len(state.bronze) + 1
    commit = world.commit_of(batch, ingest.last_seqs)
    with_rows = {game for game, _ in commit.links}
    last_seqs = tuple(seq if game in with_rows else head for game, head in enumerate(ingest.last_seqs))
    passed = ingest.passed if scenario.ingest_steps else batch
    yield (
        f"ingest commits batch {batch} of the source to bronze as seq {seq}",
        state._replace(
            bronze=(*state.bronze, commit),
            hidden=(),
            ingest=Ingest(passed, last_seqs, ingest.generation, batch, seq - scenario.late_report),
        ),
    )


def report(world: World, state: State) -> Next:
    """Ingest tells the control store of its last commit; before that it makes no other one."""
    ingest, head = state.ingest, len(state.bronze)
    if ingest.last_seqs is not None and ingest.reported < head:
        yield f"the control store hears of seq {head}", state._replace(ingest=ingest._replace(reported=head))


def note_batch(world: World, state: State) -> Next:
    """Spark writes into the checkpoint that the batch is done."""
    batch = state.ingest.passed + 1
    if not world.scenario.ingest_steps or state.ingest.last_seqs is None:
        return
    skipped = world.rules.bronze_skips_landed_batch and any(commit.batch == batch for commit in state.bronze)
    if state.ingest.landed == batch or skipped:
        yield (
            f"the checkpoint of ingest has batch {batch} as done",
            state._replace(ingest=state.ingest._replace(passed=batch)),
        )


def crash_ingest(world: World, state: State) -> Next:
    """The ingest process is killed."""
    if state.ingest.last_seqs is None or not world.scenario.ingest_steps or not state.budget.crashes:
        return
    budget = state.budget._replace(crashes=state.budget.crashes - 1)
    yield "ingest is killed", state._replace(ingest=state.ingest._replace(last_seqs=None, landed=0), budget=budget)


def start_ingest(world: World, state: State) -> Next:
    """Ingest starts, if bronze's last batch and the checkpoint fit; it takes each game's last seq from bronze."""
    ingest = state.ingest
    if ingest.last_seqs is not None:
        return
    in_bronze = max((commit.batch for commit in state.bronze), default=0)
    if world.rules.bronze_compared_at_start and in_bronze not in {ingest.passed, ingest.passed + 1}:
        return  # refused
    last_seqs = last_seqs_of(state.bronze, world.scenario.games)
    yield "ingest starts", state._replace(ingest=ingest._replace(last_seqs=last_seqs, reported=len(state.bronze)))


def adopt(world: World, state: State) -> Next:
    """A new ingest generation goes on from what bronze holds, also when the checkpoint is gone."""
    if not state.budget.adoptions:
        return
    if state.hidden and world.rules.adoption_compares_bronze:
        return  # not modelled: what bronze lost would be recorded in it, and the games that hold it would be rebuilt
    passed = max((commit.batch for commit in state.bronze), default=0)
    last_seqs = last_seqs_of(state.bronze, world.scenario.games)
    if not world.rules.last_seqs_continue:
        last_seqs = (0,) * world.scenario.games
    generation = state.ingest.generation + 1
    budget = state.budget._replace(adoptions=state.budget.adoptions - 1)
    yield (
        f"ingest is adopted: generation {generation} goes on after batch {passed}",
        state._replace(ingest=Ingest(passed, last_seqs, generation, reported=len(state.bronze)), budget=budget),
    )


def restore_older(world: World, state: State) -> Next:
    """A person stops everything and puts an older copy of bronze in its place."""
    if not state.budget.restores or state.hidden or len(state.bronze) < 2:
        return
    kept = len(state.bronze) - 1
    yield (
        f"everything is stopped, and bronze is put back from a copy that ends at seq {kept}",
        state._replace(
            bronze=state.bronze[:kept],
            hidden=state.bronze[kept:],
            ingest=state.ingest._replace(last_seqs=None, landed=0, reported=kept),
            drivers=(None,) * len(state.drivers),
            budget=state.budget._replace(restores=state.budget.restores - 1),
        ),
    )


def restore_newest(world: World, state: State) -> Next:
    """The person puts the newest copy back."""
    if state.hidden:
        yield (
            "everything is stopped, and the newest bronze is put back",
            state._replace(
                bronze=state.bronze + state.hidden,
                hidden=(),
                ingest=state.ingest._replace(last_seqs=None, landed=0, reported=len(state.bronze + state.hidden)),
                drivers=(None,) * len(state.drivers),
            ),
        )
