"""Style and script of the report's page; neither loads anything."""

PAGE_STYLE = """
:root { --text: #1f2328; --muted: #656d76; --page: #ffffff; --panel: #f6f8fa; --line: #d0d7de; --best: #116329;
  --best-back: #dafbe1; --grid: rgba(110,118,129,0.20); }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --muted: #9198a1; --page: #0d1117; --panel: #161b22; --line: #30363d; --best: #7ee787;
    --best-back: #12261e; --grid: rgba(139,148,158,0.22); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1360px; padding: 0 20px 60px; color: var(--text); background: var(--page);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 26px; margin: 28px 0 6px; }
h2 { font-size: 20px; margin: 36px 0 10px; padding-bottom: 4px; border-bottom: 1px solid var(--line); }
h3 { font-size: 16px; margin: 20px 0 6px; }
.headline { font-size: 17px; margin: 0; max-width: 95ch; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 8px; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--muted); font-weight: 600; font-size: 13px; vertical-align: bottom; }
tbody th { font-weight: 600; text-align: left; white-space: nowrap; }
.figures td { white-space: nowrap; }
.figures th:first-child { text-align: left; }
td.best { color: var(--best); background: var(--best-back); font-weight: 600; }
.wide { overflow-x: auto; }
.plot { min-height: 1080px; }
.tall { max-height: 480px; overflow: auto; border: 1px solid var(--line); border-radius: 6px; }
.note { margin: 2px 0 6px; color: var(--muted); font-size: 13.5px; }
.decisions, .changes { width: 100%; font-size: 13.5px; }
.decisions thead th, .changes thead th { position: sticky; top: 0; background: var(--panel); }
.decisions th:nth-child(4), .decisions th:last-child, .decisions td:nth-child(4), .decisions td:last-child
  { text-align: left; }
.decisions td:nth-child(5) { white-space: nowrap; }
.changes th:nth-child(3), .changes th:last-child, .changes td:nth-child(3), .changes td:last-child
  { text-align: left; }
.changes td:nth-child(2) { white-space: nowrap; }
.decisions td:last-child, .changes td:last-child { width: 60%; }
.held td { color: var(--muted); }
code { font: 12.5px ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.filter { display: flex; gap: 12px; flex-wrap: wrap; align-items: center; margin: 6px 0; color: var(--muted); }
.filter input[type=search], .filter select { font: inherit; padding: 3px 8px; color: var(--text);
  background: var(--panel); border: 1px solid var(--line); border-radius: 6px; }
.parameters td { text-align: left; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; max-width: 110ch; }
dt { font-weight: 600; }
dd { margin: 0; color: var(--muted); }
@media (max-width: 700px) { dl { display: block; } dd { margin-bottom: 8px; } }
@media print { .tall { max-height: none; } .filter { display: none; } }
"""

PAGE_SCRIPT = """
"use strict";
const plots = [];
function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = name => style.getPropertyValue(name).trim();
  return { text: of("--text"), muted: of("--muted"), grid: of("--grid"), panel: of("--panel"), line: of("--line") };
}
function themed(layout) {
  const c = colours();
  const update = { "font.color": c.text, "hoverlabel.bgcolor": c.panel, "hoverlabel.bordercolor": c.line,
    "hoverlabel.font.color": c.text };
  for (const key of Object.keys(layout)) {
    if (!/^[xy]axis\\d*$/.test(key)) continue;
    update[key + ".gridcolor"] = c.grid;
    update[key + ".linecolor"] = c.line;
    update[key + ".title.font.color"] = c.muted;
  }
  return update;
}
let following = false;
function follow(source, change) {
  // a zoom in one policy's time shows the same span of the others
  if (following) return;
  const key = Object.keys(change).find(name => /^xaxis\\d*\\.(range|autorange)/.test(name));
  if (!key) return;
  const range = source.layout.xaxis.range.slice();
  following = true;
  Promise.all(plots.filter(plot => plot !== source).map(plot =>
    Plotly.relayout(plot, change[key] === true ? { "xaxis.autorange": true } : { "xaxis.range": range })
  )).finally(() => { following = false; });
}
// the page stays on this machine: plotly's button that uploads a chart is left out
const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["sendChartToCloud"] };
const moment = seconds => new Date(1000 * seconds).toISOString().slice(0, 23);
for (const element of document.querySelectorAll(".plot")) {
  const figure = JSON.parse(document.getElementById(element.id + "-data").textContent);
  for (const trace of figure.data) trace.x = trace.x.map(moment);
  plots.push(element);
  Plotly.newPlot(element, figure.data, figure.layout, options).then(() => {
    Plotly.relayout(element, themed(element.layout));
    element.on("plotly_relayout", change => follow(element, change));
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const plot of plots) Plotly.relayout(plot, themed(plot.layout));
});
for (const filter of document.querySelectorAll(".filter")) {
  const words = filter.querySelector("input[type=search]");
  const code = filter.querySelector("select");
  const changes = filter.querySelector("input[type=checkbox]");
  const count = filter.querySelector(".count");
  const rows = Array.from(filter.nextElementSibling.querySelectorAll("tbody tr"));
  const apply = () => {
    const wanted = words.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = wanted.every(word => text.includes(word)) && (!code.value || row.dataset.code === code.value)
        && !(changes.checked && row.classList.contains("held"));
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length}`;
  };
  for (const control of [words, code, changes]) control.addEventListener("input", apply);
  apply();
}
"""
