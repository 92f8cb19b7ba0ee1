"""The page's CSS: one block, which `main.py` draws once. It hangs on keys of containers and on own classes only."""

from typing import Final

from app.look import tokens

# ruff: noqa: E501 - a rule of CSS a line

_FRAME: Final = """
.stApp{background:var(--page)}
[data-testid="stHeader"]{background:var(--card);border-bottom:1px solid var(--line)}
[data-testid="stStatusWidget"]{display:none}
[data-stale="true"]{opacity:.85!important}
[data-testid="stMainBlockContainer"]{padding-left:1.75rem;padding-right:1.75rem;max-width:1976px}
.st-key-bar{position:fixed;top:.55rem;right:3.4rem;z-index:1000000;width:auto;min-height:2.6rem}
.st-key-bar button{min-height:2rem;padding:.1rem .4rem}
.st-key-bar button:hover,.st-key-bar button[aria-expanded="true"]{color:var(--link)!important}
.st-key-bar button p{font-size:.86rem}
[role="dialog"]:has(.st-key-palette) button[aria-label="Close"]{display:none}
.st-key-whoami [data-testid="stText"] *{color:var(--mute);font-size:.86rem;white-space:nowrap;max-width:22vw;overflow:hidden;text-overflow:ellipsis}
.st-key-context{min-height:2.6rem;margin-top:.9rem}
.st-key-context>div:first-child,.st-key-context [data-testid="stHtml"]{min-width:min(22rem,100%)}
button[data-variant="segmented_control"][aria-checked="true"] *{color:var(--ink)!important}
[data-testid="stLayoutWrapper"]:has(>.st-key-bar),[data-testid="stLayoutWrapper"]:has(>.st-key-keys){position:absolute;width:0;height:0}
.st-key-keys{position:fixed;top:.55rem;left:50%;z-index:1000001;width:auto;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.2rem .4rem;opacity:0;pointer-events:none}
.st-key-keys:focus-within{opacity:1;pointer-events:auto}
.st-key-keys button{min-height:2rem;padding:.1rem .7rem}
@media(max-width:1000px){.st-key-whoami{display:none}}
"""

_CARDS: Final = """
[class*="st-key-card_"],[class*="st-key-strip"],[class*="st-key-panel_"],[class*="st-key-plan_"],[class*="_box"],[class*="st-key-verdict_"],[class*="st-key-tile_"],[class*="st-key-operation_"],[class*="st-key-confirm_"],[class*="st-key-resume_box"]{background:var(--card);border-color:var(--line);border-radius:8px}
[class*="st-key-inc_"]{border-radius:6px;padding:.5rem .9rem;border-left-width:4px;background:var(--card)}
[class*="st-key-inc_"]>div:first-child{flex:1 1 0;min-width:min(24rem,100%)}
@media(min-width:1101px){[class*="st-key-inc_"]{flex-wrap:nowrap}}
[class*="st-key-inc_bad"]{background:var(--bad-ground);border-color:var(--bad-line);border-left-color:var(--bad)}
[class*="st-key-inc_late"],[class*="st-key-inc_risk"]{background:var(--late-ground);border-color:var(--late-line);border-left-color:var(--late)}
[class*="st-key-inc_busy"]{border-left-color:var(--busy)}
[class*="st-key-inc_blind"]{border-left-color:var(--blind)}
[class*="st-key-inc_"] button,[class*="st-key-row_"] button{min-height:2rem;padding:.15rem .75rem}
[data-testid="stAlertContainer"]{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--busy);border-radius:6px;padding:.55rem .9rem;color:var(--ink)}
[data-testid="stAlertContainer"] p{color:var(--ink)}
[data-testid="stAlertContainer"]:has([data-testid="stAlertContentWarning"]){background:var(--late-ground);border-color:var(--late-line);border-left-color:var(--late)}
[data-testid="stAlertContainer"]:has([data-testid="stAlertContentError"]){background:var(--bad-ground);border-color:var(--bad-line);border-left-color:var(--bad)}
[data-testid="stAlertContainer"]:has([data-testid="stAlertContentInfo"]){border-left-color:var(--line);color:var(--mute)}
[data-testid="stAlertContainer"]:has([data-testid="stAlertContentInfo"]) p{color:var(--mute)}
[class*="st-key-operation_stuck"],.st-key-resume_box,[class*="st-key-tile_bad"]{border-left:4px solid var(--late)}
[class*="st-key-tile_bad"]{border-left-color:var(--bad)}
[class*="st-key-card_cannot"]{opacity:.75}
[class*="st-key-card_"] [data-testid="stText"],[class*="st-key-confirm_"] [data-testid="stText"],[class*="st-key-operation_"] [data-testid="stText"],[class*="st-key-tile_"] [data-testid="stText"]{font-size:.93rem;line-height:1.4}
[class*="st-key-card_"] [data-testid="stText"] *,[class*="st-key-operation_"] [data-testid="stText"] *,[class*="st-key-confirm_"] [data-testid="stText"] *,.st-key-verdict [data-testid="stText"] *{white-space:pre-wrap;overflow-wrap:anywhere}
[class*="st-key-tile_"]{padding:.5rem .8rem}
.st-key-actions>div{flex:1 1 22rem;min-width:min(20rem,100%)}
.st-key-verdict [data-testid="stText"]{font-size:.93rem;font-weight:600}
.st-key-card_why .t-facts dd{font-size:.9rem;line-height:1.4}
[data-testid="stMainBlockContainer"] h3{font-size:1.05rem;padding:.75rem 0 0}
"""

_PARTS: Final = """
.t-sentence{display:flex;align-items:baseline;flex-wrap:wrap;gap:.15rem .5rem;color:var(--ink);line-height:1.3}
.t-sentence:has(>.t-dot){position:relative;padding-left:1.55rem}
.t-sentence>.t-dot{position:absolute;left:0;top:.55rem}
.t-sentence b{font-size:1.5rem;font-weight:620;overflow-wrap:anywhere}
.t-sentence span:not(.t-pill){color:var(--mute);font-size:1rem;overflow-wrap:anywhere}
.t-dot{width:.72rem;height:.72rem;flex:none;border-radius:2px;margin:0 .25rem 0 .28rem;background:var(--bad);box-shadow:0 0 0 4px color-mix(in srgb,var(--bad) 28%,transparent)}
.t-dot.t-well{border-radius:50%;background:var(--ok);box-shadow:0 0 0 4px color-mix(in srgb,var(--ok) 24%,transparent)}
.t-dot.t-late{background:var(--late);box-shadow:0 0 0 4px color-mix(in srgb,var(--late) 28%,transparent)}
.t-dot.t-risk{background:var(--risk);box-shadow:0 0 0 4px color-mix(in srgb,var(--risk) 34%,transparent)}
.t-dot.t-busy{background:var(--busy);border-radius:50%;box-shadow:0 0 0 4px color-mix(in srgb,var(--busy) 28%,transparent)}
.t-dot.t-blind{background:none;border:2px solid var(--mute);box-shadow:none}
.t-dot.t-plain{border-radius:50%;background:var(--mute);box-shadow:0 0 0 4px color-mix(in srgb,var(--mute) 20%,transparent)}
.t-strip>div{display:flex;gap:3px;height:26px}
.t-strip i{flex:1 1 0;min-width:0;border-radius:2px;overflow:hidden;background:var(--ok-quiet);display:flex;flex-direction:column-reverse}
.t-strip i.t-none,.t-loads i.t-none{background:repeating-linear-gradient(135deg,var(--line) 0 3px,transparent 3px 6px)}
.t-strip u{display:block;flex:none;text-decoration:none}
.t-strip u.t-none{background:repeating-linear-gradient(135deg,var(--line) 0 3px,var(--card) 3px 6px)}
.t-strip u.t-bad{background:var(--bad)}.t-strip u.t-late{background:var(--late)}
.t-strip p{display:flex;justify-content:space-between;margin:.2rem 0 0!important;font-size:.8rem;color:var(--mute)}
.t-figures{display:flex;flex-wrap:wrap;margin:0!important;padding:0!important;border-top:1px solid var(--line)}
.st-key-strip_repairs .t-figures{border-top:0}
.t-figures>div{flex:1 1 0;min-width:8.2rem;padding:.55rem .85rem .5rem;border-left:1px solid var(--line);color:var(--spark)}
.t-figures>div:first-child{border-left:0;padding-left:0}
.t-figures dt{font-weight:400;font-size:.86rem;color:var(--mute);white-space:nowrap}
.t-figures dd{margin:0!important;padding:0!important}
.t-figures dd b{font-size:1.65rem;font-weight:600;line-height:1.25;color:var(--ink);white-space:nowrap}
.t-figures .t-bad dd>b{color:var(--bad-text)}
.t-figures dd small{font-size:.86rem;color:var(--mute);margin-left:.25rem}
.t-figures .t-bad{color:var(--bad)}.t-figures .t-late,.t-figures .t-risk{color:var(--late)}
.t-spark{position:relative;height:24px;margin:.15rem .5rem .15rem 0!important}
.t-figures .t-spark b{position:absolute;inset:0;background:currentColor;mask-size:100% 100%;mask-repeat:no-repeat}
.t-figures .t-spark>b{color:inherit}
.t-figures .t-bad .t-spark>b{color:inherit}
.t-spark s{position:absolute;left:0;right:0;border-top:1px dashed var(--bad-text)}
.t-spark u{position:absolute;right:-4px;width:7px;height:7px;margin-top:-4px;border-radius:50%;background:currentColor}
.t-figures .t-note{font-size:.8rem;color:var(--mute);overflow-wrap:anywhere}
.t-faded dd{opacity:.6}.t-faded .t-note{opacity:1}
.t-section{display:flex;align-items:baseline;flex-wrap:wrap;gap:.1rem .6rem;color:var(--ink)}
.t-section b{font-size:.93rem;font-weight:600}
.t-section>span{font-size:.86rem;color:var(--mute)}
.t-section ul{display:flex;flex-wrap:wrap;gap:.1rem .8rem;list-style:none;margin:0 0 0 auto!important;padding:0!important}
.t-section li{font-size:.86rem;color:var(--mute);margin:0!important;display:flex;align-items:center;gap:.35rem}
.t-section li i{width:9px;height:9px;border-radius:2px;flex:none}
.t-incident{display:flex;gap:.9rem;align-items:flex-start;color:var(--ink)}
.t-incident>i{font-style:normal;width:1rem;flex:none;text-align:center;color:var(--mute)}
.t-incident.t-bad>i{color:var(--bad-text)}.t-incident.t-late>i,.t-incident.t-risk>i{color:var(--late-text)}
.t-incident>div{flex:1 1 auto;min-width:0;overflow-wrap:anywhere}
.t-incident b{font-size:1rem;font-weight:600}
[class*="st-key-inc_"][class*="_cause"] .t-incident b{font-size:1.1rem}
.t-incident p{margin:.1rem 0 0!important;font-size:.9rem;color:var(--mute)}
.t-incident>span{flex:none;font-size:.9rem;color:var(--mute)}
.t-calm{color:var(--mute);display:flex;gap:.6rem}.t-calm i{font-style:normal;color:var(--ok)}
.t-note{font-size:.86rem;color:var(--mute);overflow-wrap:anywhere}
.t-facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.25rem .8rem;margin:0!important;padding:0!important;color:var(--ink)}
.t-facts dt{font-weight:400;font-size:.86rem;color:var(--mute);line-height:1.6}
.t-facts dd{margin:0!important;padding:0!important;overflow-wrap:anywhere}
.t-numbers{display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:0!important;padding:0!important}
.t-numbers>div{flex:1 1 4.2rem}
.t-numbers dt{font-weight:400;font-size:.8rem;color:var(--mute)}
.t-numbers dd{margin:0!important;padding:0!important;font-weight:600;color:var(--ink);white-space:nowrap}
.t-pill{display:inline-block;border-radius:99px;padding:.05rem .55rem;font-size:.86rem;line-height:1.45;white-space:nowrap}
PILLS
.t-title{display:flex;align-items:center;flex-wrap:wrap;gap:.2rem .6rem;color:var(--ink)}
.t-title b{font-size:1.1rem;font-weight:600;overflow-wrap:anywhere}
.t-title>span:not(.t-pill){font-size:.86rem;color:var(--mute);overflow-wrap:anywhere}
.t-title .t-right{margin-left:auto}
.t-steps{display:flex;flex-wrap:wrap;list-style:none;margin:0!important;padding:0!important;color:var(--ink)}
.t-steps li{flex:1 1 9rem;margin:0!important;padding:.4rem .8rem .2rem 1.4rem!important;border-top:3px solid var(--line);position:relative}
.t-steps i{position:absolute;left:.1rem;font-style:normal;color:var(--mute)}
.t-steps b{font-weight:500;display:block;overflow-wrap:anywhere}
.t-steps span{font-size:.86rem;color:var(--mute);display:block;overflow-wrap:anywhere}
.t-steps .t-done{border-top-color:var(--ok)}.t-steps .t-done i{color:var(--ok)}
.t-steps .t-running{border-top-color:var(--busy)}
.t-steps .t-failed{border-top-color:var(--bad)}.t-steps .t-failed i{color:var(--bad-text)}
.t-steps .t-person{border-top-color:var(--late)}.t-steps .t-person i{color:var(--late-text)}
.t-steps .t-waiting b{color:var(--mute)}
.t-journal{list-style:none;margin:0!important;padding:0!important;color:var(--ink)}
.t-journal li{display:grid;grid-template-columns:1.4rem minmax(0,1fr) max-content;gap:0 .4rem;margin:0!important;padding:.3rem 0!important;border-top:1px solid var(--line)}
.t-journal li:first-child{border-top:0}
.t-journal i{font-style:normal;color:var(--mute)}
.t-journal b{font-weight:500;overflow-wrap:anywhere}
.t-journal span{font-size:.86rem;color:var(--mute)}
.t-journal p{grid-column:2/4;margin:0!important;font-size:.9rem;color:var(--mute);overflow-wrap:anywhere}
.t-journal .t-done i{color:var(--ok)}.t-journal .t-failed i{color:var(--bad-text)}.t-journal .t-person i{color:var(--late-text)}
.t-journal .t-waiting b{color:var(--mute)}
.t-loads{display:grid;grid-template-columns:max-content minmax(0,1fr) max-content;gap:.4rem .9rem;align-items:center;margin:0!important;padding:0!important;color:var(--ink)}
.t-loads dt{font-size:.93rem;font-weight:600}
.t-loads dd{margin:0!important;padding:0!important;font-size:.86rem;color:var(--mute);text-align:right}
.t-loads i{position:relative;display:flex;height:15px;border-radius:2px;background:var(--soft)}
.t-loads p{display:flex;justify-content:space-between;margin:0!important;font-size:.8rem;font-variant-numeric:tabular-nums}
.t-loads u{display:block;background:var(--series-2);border-radius:2px 0 0 2px}
.t-loads .t-gain{background:var(--series-1)}.t-loads .t-loss{opacity:.4}
.t-loads s{position:absolute;top:0;bottom:0;width:2px;background:var(--bad-text)}
.t-diff{margin:0!important;padding:.4rem 0!important;border:1px solid var(--line);border-radius:6px;background:var(--card);color:var(--ink);font-size:.86rem;line-height:1.5;overflow-x:auto}
.t-diff i{display:block;font-style:normal;padding:0 .7rem;white-space:pre-wrap;overflow-wrap:anywhere}
.t-diff .t-plus{background:var(--pill-well);color:var(--pill-well-ink)}
.t-diff .t-minus{background:var(--minus);color:var(--minus-ink)}
.t-runbook{color:var(--ink);max-width:60rem}.t-runbook p{margin:0!important}
.t-runbook ol{margin:0!important;padding:0 0 0 1.3rem!important}.t-runbook li{margin:0!important;padding:0!important}
.t-runbook code{background:var(--soft);color:var(--ink);padding:.05em .3em;border-radius:3px;font-size:.9em;overflow-wrap:anywhere}
.t-silence{min-height:170px;display:flex;flex-direction:column;align-items:center;justify-content:center;text-align:center;color:var(--ink)}
.t-silence p{color:var(--mute);margin:.2rem 0 0!important;font-size:.9rem}
@media(max-width:1100px){.t-figures>div{flex-basis:22%}}
@media(max-width:640px){.t-figures>div{flex-basis:42%}.t-incident{flex-wrap:wrap}}
"""


def scheme(mode: tokens.Mode) -> str:
    """Return what a drawer needs: it stands outside the page, and so has not the page's `color-scheme`."""
    return f'<i hidden></i><style>[role="dialog"]{{color-scheme:{mode}}}</style>'


def block() -> str:
    """Return the block, colours first."""
    pills = "".join(
        f".t-pill-{tone}{{background:var(--pill-{tone});color:var(--pill-{tone}-ink)}}" for tone in tokens.FILLS
    )
    rules = (_FRAME + _CARDS + _PARTS).replace("PILLS", pills)
    return f"<style>:root{{{tokens.properties()}}}{rules}</style>"
