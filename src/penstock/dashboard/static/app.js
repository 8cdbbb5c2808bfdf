// Live numbers, charts, the jump dialog, copy buttons and the theme. Every page also works without this file.
"use strict";

const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// -- live parts: refreshed while the page is visible ------------------------------------------------------------------

const LIVE_MS = 5000;
// A form that is being filled in and a part that is open are not replaced: neither now nor by a reply that is on its way.
const inUse = () => document.activeElement?.closest("#live input, #live textarea, #live select") || one("#live details[open]");
setInterval(() => {
  if (document.visibilityState === "visible" && !inUse()) document.body.dispatchEvent(new CustomEvent("live"));
}, LIVE_MS);
document.addEventListener("htmx:before:swap", (event) => {
  // An error keeps the last numbers on the page: the server may be restarting.
  if (inUse() || event.detail.ctx.response.status >= 400) event.preventDefault();
});

// -- relative times ---------------------------------------------------------------------------------------------------

function relative(at) {
  const ahead = at - Date.now();
  const size = Math.abs(ahead);
  if (size < 1000) return "now";
  const [unit, name] = [[864e5, "d"], [36e5, "h"], [6e4, "min"], [1e3, "s"]].find(([least]) => size >= least);
  const text = `${Math.floor(size / unit)} ${name}`;
  return ahead > 0 ? `in ${text}` : `${text} ago`;
}
setInterval(() => {
  for (const each of all("time[data-ms]")) each.textContent = relative(Number(each.dataset.ms));
}, 10_000);

// -- theme ------------------------------------------------------------------------------------------------------------

one("#theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `penstock_theme=${root.dataset.theme}; Path=/; Max-Age=31536000; SameSite=Lax`;
  drawCharts();
});

// -- jump: Ctrl-K or Cmd-K ---------------------------------------------------------------------------------------------

const dialog = one("#jump");
function openJump() {
  if (!dialog.open) dialog.showModal();
  one("input", dialog).select();
  findJumps();
}
// The list shows the reply to the newest search. Once the keyboard is in the list, a late reply does not replace it.
let searches = 0;
let search = Promise.resolve();
function findJumps() {
  search = loadJumps(++searches);
}
async function loadJumps(number) {
  const query = new URLSearchParams({ q: one("input", dialog).value });
  const reply = await fetch(`/ui/jump?${query}`, { headers: { "HX-Request": "true" } }).catch(() => null);
  if (!reply?.ok) return;
  const found = new DOMParser().parseFromString(await reply.text(), "text/html");
  if (number === searches) one(".hits", dialog).replaceWith(one(".hits", found));
}
all(".jump").forEach((button) => button.addEventListener("click", (event) => { event.preventDefault(); openJump(); }));
one("input", dialog).addEventListener("input", findJumps);
one("form", dialog).addEventListener("submit", async (event) => {
  event.preventDefault();
  for (let awaited; awaited !== search;) await (awaited = search);
  one(".hits a", dialog)?.click();
});
dialog.addEventListener("focusin", (event) => { if (event.target.closest(".hits")) searches += 1; });
document.addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openJump();
    return;
  }
  const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
  const typing = document.activeElement?.matches("input, textarea, select");
  if (!step || event.metaKey || event.ctrlKey || event.altKey || (typing && !dialog.open)) return;
  if (event.key.length === 1 && typing) return;
  const stops = dialog.open ? [one("input", dialog), ...all(".hits a", dialog)] : all("[data-stop]");
  if (!stops.length || (!dialog.open && event.key.length > 1)) return;
  const at = stops.indexOf(document.activeElement);
  stops[Math.min(Math.max(at + step, 0), stops.length - 1)].focus();
  event.preventDefault();
});

// -- copy and select ----------------------------------------------------------------------------------------------------

// Browsers have a clipboard only on https and on localhost; elsewhere the text is selected.
async function copyText(source) {
  const copied = await navigator.clipboard?.writeText(source.textContent).then(() => true, () => false);
  if (!copied) getSelection().selectAllChildren(source);
  return copied;
}
document.addEventListener("click", async (event) => {
  const copy = event.target.closest(".copy");
  if (copy) {
    copy.textContent = (await copyText(one("pre", copy.closest(".code")))) ? "Copied" : "Selected";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  }
});
document.addEventListener("change", (event) => {
  if (event.target.matches("#all-ids")) for (const box of all("input[name=ids]")) box.checked = event.target.checked;
  const count = one("#chosen");
  if (count) {
    const chosen = all("input[name=ids]:checked").length;
    count.textContent = chosen ? `${chosen} selected` : count.dataset.none;
  }
});

// -- filters: each part of a filter is completed, not only its first -------------------------------------------------------

document.addEventListener("input", (event) => {
  const list = event.target.matches("[data-completed]") && event.target.list;
  if (!list) return;
  list.known ??= [...list.options].map((option) => option.value);
  const { value } = event.target;
  const [before] = value.match(/^(.*(?:\b(?:and|or|not)\s+|\())?/i);
  const isWhole = /["\d\w]\s+$/.test(value.slice(before.length));
  const offered = isWhole ? ["and ", "or "].map((word) => value + word) : list.known.map((each) => before + each);
  list.replaceChildren(...offered.map((each) => Object.assign(document.createElement("option"), { value: each })));
});

// -- charts ---------------------------------------------------------------------------------------------------------------

const charts = new Map();
const color = (name) => {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
};
async function load(url) {
  const reply = await fetch(url).catch(() => null);
  return reply?.ok ? reply.json() : null;
}
async function drawCharts() {
  // Charts of the same queue share one call, for the series that they show.
  const columns = new Map();
  for (const { dataset } of all(".chart[data-url]")) {
    columns.set(dataset.url, [...(columns.get(dataset.url) || []), ...dataset.lines.split(" ").map((line) => line.split(":")[0])]);
  }
  const replies = new Map([...columns].map(([url, names]) => [url, load(`${url}${url.includes("?") ? "&" : "?"}columns=${names.join(",")}`)]));
  for (const place of all(".chart")) {
    const found = place.dataset.json ? JSON.parse(place.dataset.json) : await replies.get(place.dataset.url);
    if (!found) continue;
    const lines = place.dataset.lines.split(" ").map((line) => line.split(":"));
    const per = place.dataset.per === "second" ? found.step_ms / 1000 : 1;
    charts.get(place)?.destroy();
    charts.delete(place);
    if (lines.every(([name]) => found.series[name].every((value) => value === null))) {
      place.innerHTML = '<p class="muted">No minute of this time is known. The first one is there a minute after the start.</p>';
      continue;
    }
    place.textContent = "";
    // A line has a point for every two pixels: the mean of rates, the largest of other values.
    const size = Math.max(1, Math.ceil(found.at_ms.length / (place.clientWidth / 2)));
    const merged = (values) => joined(values, size, place.dataset.per === "second");
    const data = [
      found.at_ms.filter((_, at) => at % size === 0).map((at) => at / 1000),
      ...lines.map(([name]) => merged(found.series[name]).map((value) => (value === null ? null : value / per))),
    ];
    // Without a pointer over the chart its legend has the newest values.
    const known = data[0].findLastIndex((_, at) => data.some((line, number) => number && line[at] !== null));
    const newest = (chart) => chart.cursor.idx ?? chart.setLegend({ idx: known });
    const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    charts.set(place, new uPlot({
      width: place.clientWidth - 12, height: 170, padding: [10, 10, 0, 0], cursor: { y: false }, legend: { live: true },
      axes: [{ ...axis, size: 28, grid: { show: false }, space: 70, values: (_, times) => times.map(clock) }, { ...axis, size: 54, values: (_, ticks) => ticks.map((tick) => compact(tick)) }],
      hooks: { ready: [newest], setCursor: [newest] },
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.08)] } },
      series: [{ value: "{HH}:{mm}" }, ...lines.map(([, label, hue]) => ({
        label: label.replaceAll("_", " "), stroke: color(hue), width: 1.4, points: { show: false },
        value: (_, value) => (value === null ? "–" : compact(value)),
      }))],
    }, data, place));
  }
}
function joined(values, size, isRate) {
  const found = [];
  for (let at = 0; at < values.length; at += size) {
    const known = values.slice(at, at + size).filter((value) => value !== null);
    if (!known.length) found.push(null);
    else found.push(isRate ? known.reduce((one, other) => one + other) / known.length : Math.max(...known));
  }
  return found;
}
function clock(seconds) {
  const at = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  return at.getHours() || at.getMinutes() ? `${two(at.getHours())}:${two(at.getMinutes())}` : `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}
function compact(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(0)}k`;
  return Number.isInteger(value) ? String(value) : value.toFixed(value < 10 ? 2 : 1);
}
if (one(".chart")) {
  drawCharts();
  setInterval(() => document.visibilityState === "visible" && drawCharts(), 60_000);
  let resized;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(drawCharts, 200); });
}

// -- live tail ------------------------------------------------------------------------------------------------------------

const tail = one("#tail");
if (tail) {
  const ROWS_MAX = 300;
  let source;
  const cell = (text, name) => {
    const made = document.createElement("span");
    made.textContent = text;
    if (name) made.className = name;
    return made;
  };
  const open = () => {
    const query = new URLSearchParams();
    for (const name of ["queue", "kind"]) if (tail.dataset[name]) query.set(name, tail.dataset[name]);
    const opened = source = new EventSource(`/v1/events/stream?${query}`);
    const say = (text) => { if (source === opened) one("#tail-state").textContent = text; };
    opened.addEventListener("open", () => say("live"));
    opened.addEventListener("error", () => say("reconnecting"));
    opened.addEventListener("message", (event) => {
      if (source !== opened) return;
      const told = JSON.parse(event.data);
      const row = document.createElement("li");
      const more = [told.consumer, told.error, told.messages.slice(0, 3).join(" "), told.count > 3 ? `… ${told.count} messages` : ""];
      row.append(cell(new Date(told.at_ms).toISOString().slice(11, 23), "muted"), cell(told.kind, `state ${told.kind}`),
        cell(told.queue.replace(/^default\/default\//, ""), "any"), cell(more.filter(Boolean).join("  "), "any muted"));
      tail.prepend(row);
      while (tail.children.length > ROWS_MAX) tail.lastChild.remove();
      one("#tail-empty")?.remove();
    });
  };
  const pause = one("#tail-pause");
  const close = (text) => {
    source?.close();
    source = undefined;
    one("#tail-state").textContent = text;
  };
  pause.addEventListener("click", () => {
    if (source) close("paused"); else { one("#tail-state").textContent = "connecting"; open(); }
    pause.textContent = source ? "Pause" : "Resume";
  });
  // A hidden page has no stream: browsers have few connections for one server.
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") source && close("hidden");
    else if (!source && one("#tail-state").textContent === "hidden") open();
  });
  if (document.visibilityState === "visible") open(); else close("hidden");
}
