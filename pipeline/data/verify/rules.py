"""The rules of the balance, as SQL over the tables that `readings` fills; run by `balance`.

Each rule collects its offenders, so that counting and naming them read the same rows.
"""

from typing import Final

# One line per place (game, seq, pos) that is not simply "once in bronze, once in the table, cursor past it".
# A quarantine row that bronze lacks is judged only if it was there before bronze was read, and not if it belongs to
# the seq right after bronze's cursor, or to a batch that ingest has not landed yet: it writes quarantine first.
# Rows of a table without a seq or a pos share the stand-in of a missing one: they are no copies of each other, so each
# is a phantom.
ODD: Final = """
CREATE TABLE odd AS
WITH places_of AS (
    SELECT ord, seq, pos,
        count(*) FILTER (side = 'bronze') AS bronze,
        count(*) FILTER (side = 'table') AS landed,
        count(*) FILTER (side = 'before') AS before,
        count(*) FILTER (side = 'after') AS after,
        coalesce(bool_or(refused), false) AS refused,
        min(reason) AS reason
    FROM entries GROUP BY ord, seq, pos
), unusual AS MATERIALIZED (
    SELECT places_of.*, coalesce(cursor, 0) AS cursor, coalesce(seq <= cursor, false) AS passed
    FROM places_of JOIN places USING (ord)
    WHERE NOT (bronze = 1 AND landed = 1 AND before + after = 0 AND coalesce(seq <= cursor, false))
), elsewhere AS (
    SELECT entries.seq, entries.pos, min(game_key) AS owner
    FROM entries JOIN places USING (ord)
    WHERE side = 'bronze'
        AND (entries.seq, entries.pos) IN (SELECT (seq, pos) FROM unusual WHERE landed > 0 AND bronze = 0)
    GROUP BY ALL
), newest AS (
    SELECT greatest(coalesce($head::BIGINT, 0), coalesce(max(seq), 0)) AS seq FROM entries WHERE side = 'bronze'
), ahead AS (
    SELECT DISTINCT unusual.seq FROM unusual, newest
    WHERE unusual.seq = newest.seq + 1
        OR EXISTS (SELECT 1 FROM reserved WHERE unusual.seq BETWEEN reserved.first AND reserved.last)
), judged AS (
    SELECT unusual.*, owner, unusual.seq >= 0 AND unusual.pos >= 0 AS placed,
        landed > 0 OR (before + CASE WHEN $once THEN after ELSE 0 END > 0 AND ahead.seq IS NULL) AS judge
    FROM unusual LEFT JOIN elsewhere USING (seq, pos) LEFT JOIN ahead ON ahead.seq = unusual.seq
)
SELECT ord, seq, pos, owner, cursor, reason,
    CASE WHEN placed THEN greatest(landed - 1, 0) ELSE 0 END AS duplicated,
    (bronze = 0 AND landed > 0 AND owner IS NOT NULL)::INT AS misrouted,
    (bronze = 0 AND judge AND (landed = 0 OR owner IS NULL))::INT
        * CASE WHEN placed THEN 1 ELSE greatest(landed, 1) END AS phantom,
    (bronze > 0 AND landed = 0 AND before + after = 0 AND (refused OR passed))::INT AS lost,
    (bronze > 0 AND landed = 0 AND before + after = 0 AND NOT (refused OR passed))::INT AS pending,
    (landed > 0 AND seq > cursor AND NOT refused)::INT AS early,
    (landed = 0 AND before + after > 0 AND (bronze > 0 OR judge))::INT AS quarantined,
    (bronze = 0 AND NOT judge)::INT AS ahead,
    (landed > 0 AND before + after > 0)::INT AS stale_twins,
    greatest(after - 1, 0) AS quarantine_copies
FROM judged
"""

# A link over rows that an operator has accepted as lost is no fault.
BROKEN: Final = """
CREATE TABLE broken AS
SELECT ord, seq, low, high, holes, expected, NOT holes AND low = high AND low > expected AND EXISTS (
    SELECT 1 FROM gaps JOIN places USING (game_key)
    WHERE places.ord = links.ord AND gaps.above <= links.expected AND links.low <= gaps.through
) AS accepted
FROM (SELECT *, coalesce(lag(seq) OVER (PARTITION BY ord ORDER BY seq), 0) AS expected FROM chain) AS links
WHERE holes OR low <> high OR low <> expected
"""

TWICE: Final = """
CREATE TABLE twice AS
SELECT min(ord) AS ord, seq, pos, count(*) AS rows FROM entries WHERE side = 'bronze'
GROUP BY seq, pos HAVING rows > 1
"""

# Ingest numbers the rows of a seq from 0, over all of its games. A place that bronze lacks before the last it has was
# deleted. Here are those that no other rule reports: of what a table or quarantine holds there is a phantom, and where
# all rows of a game are gone from a seq, its chain is broken, or that gap was accepted. Needs `twice` and `broken`.
HOLES: Final = """
CREATE TABLE holes AS
WITH seqs AS (
    SELECT seq, max(pos) AS last, count(*) AS rows FROM entries
    WHERE side = 'bronze' AND seq >= 0 AND pos >= 0 GROUP BY seq
), copies AS (
    SELECT seq, sum(rows - 1) AS extra FROM twice WHERE seq >= 0 AND pos >= 0 GROUP BY seq
), torn AS (
    SELECT seq, last FROM seqs LEFT JOIN copies USING (seq) WHERE last + 1 > rows - coalesce(extra, 0)
        AND NOT EXISTS (SELECT 1 FROM gaps WHERE gaps.above < seqs.seq AND seqs.seq <= gaps.through)
        AND NOT EXISTS (
            SELECT 1 FROM broken WHERE broken.expected < seqs.seq AND seqs.seq <= broken.high AND seqs.seq < broken.seq
        )
), known AS (
    SELECT DISTINCT seq, pos FROM entries JOIN torn USING (seq) WHERE pos BETWEEN 0 AND last
)
SELECT seq, before + 1 AS first, pos - 1 AS last
FROM (SELECT seq, pos, lag(pos, 1, -1) OVER (PARTITION BY seq ORDER BY pos) AS before FROM known)
WHERE pos > before + 1
"""

# Copies of a record beyond its first place in bronze. Rows of a source with unknown eras are left out.
READ_TWICE: Final = """
CREATE TABLE read_twice AS
WITH records AS (
    SELECT coalesce(game_key, '') AS game_key, seq, pos, topic, "partition", "offset",
        CASE WHEN "partition" IS NOT NULL THEN topic
            WHEN starts_with(topic, 'delta:') THEN split_part(topic, '/', 1) || '/' ELSE '' END AS source
    FROM files(?) WHERE "offset" IS NOT NULL AND topic IS NOT NULL
), dated AS (
    SELECT records.*, eras.identity
    FROM records ASOF JOIN eras ON records.source = eras.source AND records.seq > eras.since
), doubled AS (
    SELECT identity, topic, "partition", "offset" FROM dated GROUP BY ALL HAVING count(*) > 1
), copies AS (
    SELECT DISTINCT dated.game_key, dated.topic, dated."partition", dated."offset", dated.seq, dated.pos, dated.identity
    FROM dated JOIN doubled ON dated.identity = doubled.identity AND dated.topic = doubled.topic
        AND dated."offset" = doubled."offset" AND dated."partition" IS NOT DISTINCT FROM doubled."partition"
), numbered AS (
    SELECT copies.*, row_number() OVER one AS number, first_value(seq) OVER one AS first_seq,
        first_value(pos) OVER one AS first_pos
    FROM copies WINDOW one AS (PARTITION BY identity, topic, "partition", "offset" ORDER BY seq, pos)
)
SELECT ord, seq, pos, 'record ' || topic || coalesce('/' || "partition", '') || '/' || "offset"
    || ' was read before, at seq ' || first_seq || ', pos ' || first_pos AS detail
FROM numbered JOIN places USING (game_key) WHERE number > 1
"""

READ_TWICE_CUT: Final = READ_TWICE.replace(
    "eras.identity\n",
    """eras.identity || ' ' || (
        SELECT count(*) FROM cuts WHERE cuts.topic = records.topic AND cuts."partition" = records."partition"
            AND records."offset" >= cuts.first AND records.seq > cuts.since
    ) AS identity
""",
)
"""READ_TWICE where a topic's log was cut and has grown again: an offset behind the cut is another record since then."""

NO_RECORDS: Final = "CREATE TABLE read_twice (ord INTEGER, seq BIGINT, pos BIGINT, detail VARCHAR)"
"""Instead of READ_TWICE, when no source is known or bronze is empty."""

# Parameter: the last seq of bronze's cursor; null without one.
BEYOND: Final = """
CREATE TABLE beyond AS
SELECT ord, cursor, head FROM places, (
    SELECT greatest(coalesce(?::BIGINT, 0), coalesce(max(seq), 0)) AS head FROM entries WHERE side = 'bronze'
) WHERE cursor > head
"""

_COUNT_SIDES: Final = """
SELECT game_key, count(*) FILTER (side = 'bronze') AS bronze_rows, count(*) FILTER (side = 'table') AS landed
FROM entries JOIN places USING (ord) GROUP BY game_key
"""

_COUNT_ODD: Final = """
SELECT game_key, sum(quarantined) AS quarantined, sum(pending) AS pending, sum(lost) AS lost,
    sum(duplicated) AS duplicated, sum(misrouted) AS misrouted, sum(phantom) AS phantom, sum(early) AS early,
    sum(ahead) AS ahead, sum(stale_twins) AS stale_twins, sum(quarantine_copies) AS quarantine_copies
FROM odd JOIN places USING (ord) GROUP BY game_key
"""

_COUNT_BROKEN: Final = """
SELECT game_key, count(*) FILTER (NOT accepted) AS broken_chain, count(*) FILTER (accepted) AS accepted_gaps
FROM broken JOIN places USING (ord) GROUP BY game_key
"""

_COUNT_TWICE: Final = """
SELECT game_key, sum(rows - 1) AS bronze_duplicates FROM twice JOIN places USING (ord) GROUP BY game_key
"""

_COUNT_READ_TWICE: Final = """
SELECT game_key, count(*) AS source_duplicates FROM read_twice JOIN places USING (ord) GROUP BY game_key
"""

_COUNT_BEYOND: Final = (
    "SELECT game_key, count(*) AS beyond_bronze FROM beyond JOIN places USING (ord) GROUP BY game_key"
)

COUNT_HOLES: Final = "SELECT coalesce(sum(last - first + 1), 0)::BIGINT FROM holes"

REASONS: Final = "SELECT reason, count(*)::BIGINT FROM odd WHERE quarantined = 1 GROUP BY reason ORDER BY reason"

# Parameter: how many places to name per kind.
PROBLEMS: Final = """
SELECT kind, game_key, seq, pos, detail FROM (
    SELECT kind, ord, seq, pos, CASE kind
        WHEN 'lost' THEN 'in bronze, but neither in the table nor in quarantine'
        WHEN 'duplicated' THEN (amount + 1) || ' times in the table'
        WHEN 'misrouted' THEN 'in this table, but bronze gives it to ' || owner
        WHEN 'phantom' THEN 'in the table or in quarantine, but not in bronze'
        ELSE 'in the table, but the cursor is at ' || cursor END AS detail
    FROM (
        UNPIVOT (SELECT ord, seq, pos, owner, cursor, lost, duplicated, misrouted, phantom, early FROM odd)
        ON lost, duplicated, misrouted, phantom, early INTO NAME kind VALUE amount
    ) WHERE amount > 0
    UNION ALL
    SELECT 'broken_chain', ord, seq, NULL, CASE
        WHEN holes THEN 'prev_seq is missing'
        WHEN low <> high THEN 'prev_seq is ' || low || ' and also ' || high || ' within one seq'
        ELSE 'prev_seq is ' || low || ', but the seq before is ' || expected END
    FROM broken WHERE NOT accepted
    UNION ALL
    SELECT 'bronze_duplicates', ord, seq, pos, rows || ' times in bronze' FROM twice
    UNION ALL
    SELECT 'bronze_holes', NULL, seq, first, CASE WHEN first = last THEN 'bronze lacks this place'
        ELSE 'bronze lacks the places from here to ' || last END || '; its game is unknown'
    FROM holes
    UNION ALL
    SELECT 'source_duplicates', ord, seq, pos, detail FROM read_twice
    UNION ALL
    SELECT 'beyond_bronze', ord, cursor, NULL, 'the cursor is at ' || cursor || ', but bronze ends at ' || head
    FROM beyond
) LEFT JOIN places USING (ord)
QUALIFY row_number() OVER (PARTITION BY kind ORDER BY seq, pos, game_key) <= ?
ORDER BY kind, seq, pos, game_key
"""

COUNTS: Final = (_COUNT_SIDES, _COUNT_ODD, _COUNT_BROKEN, _COUNT_TWICE, _COUNT_READ_TWICE, _COUNT_BEYOND)
"""Each gives a game's key and some of its counts, by the columns' names."""

# Parameters: bronze's files, a key, a name (or null), how many.
PLACES_OF_NAME: Final = """
SELECT seq, pos FROM files(?) WHERE coalesce(game_key, '') = ? AND game IS NOT DISTINCT FROM ? ORDER BY ALL LIMIT ?
"""
