
"use strict";

const $ = (id) => document.getElementById(id);
const counted = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;

/** An element that holds text or other elements; text is never read as HTML. */
function element(name, held = "", className = "") {
  const made = document.createElement(name);
  made.append(...[held].flat());
  if (className) made.className = className;
  return made;
}

function facts(list, pairs) {
  list.replaceChildren(...pairs.map(([term, text]) => element("div", [element("dt", term), element("dd", text)])));
}

/** Show what one query found; return the function that ends it. */
function showPage(held, factsList) {
  const gone = new AbortController();

  // ---- texts ------------------------------------------------------------------------------------------------------

  function showQuery() {
    const words = "SELECT|NXT|NONE|FROM|WHERE|PARTITION|BY|WITHIN|EVENTS?|HOURS?|MINUTES?|SECONDS?|CONSUME|LIMIT|FILTER" +
      `|AS|AND|OR|NOT|LIKE|IN|RANGE|TRUE|FALSE|${held.strategies.join("|")}`;
    const parts = new RegExp(`(--[^\\n]*|/\\*[^]*?\\*/)|('(?:[^']|'')*')|(\`[^\`]*\`|[A-Za-z_]\\w*)`, "g");
    const keyword = new RegExp(`^(?:${words})$`); // in lower case most could be names
    const text = held.query.trim();
    let end = 0;
    for (const found of text.matchAll(parts)) {
      const name = found[1] ? "comment" : found[2] ? "text" : keyword.test(found[3]) ? "keyword" : "";
      if (!name) continue;
      $("query").append(text.slice(end, found.index), element("span", found[0], name));
      end = found.index + found[0].length;
    }
    $("query").append(text.slice(end));
    $("words").append(held.words.join("\n"));
    $("notes").append(...held.notes.map((note) => element("li", note)));
  }

  function cell(value) {
    return value === null ? element("td", "NULL", "null") : element("td", value);
  }

  function showMeasures({ columns, rows, n_rows }) {
    const head = element("tr", columns.map((name) => element("th", name)));
    const lines = rows.map((row) => element("tr", row.map(cell)));
    $("measured").replaceChildren(element("thead", [head]), element("tbody", lines));
    $("measures-note").textContent = n_rows === null ? `The first ${counted(rows.length, "row")}.` : rows.length < n_rows
      ? `The first ${rows.length.toLocaleString("en")} of ${n_rows.toLocaleString("en")} rows.` : "";
    $("measures").hidden = false;
  }

  $("limits").append(...limits().map((limit) => element("li", limit)));
  facts(factsList, [
    [held.n_matches === 1 ? "complex event" : "complex events", held.found],
    ...(held.name ? [] : [[held.n_events === 1 ? "event read" : "events read", held.n_events.toLocaleString("en")]]),
    ...(held.keys.length ? [["partitions with any", held.n_partitions.toLocaleString("en")]] : []),
  ]);
  showQuery();
  if (held.measures) showMeasures(held.measures);
  if (held.n_matches === 0) {
    $("found").replaceChildren(element("p", "The query found no complex events."));
    return () => {};
  }

  function limits() {
    if (held.n_matches === 0) return [];
    const { rows, step } = held;
    const nth = (n) => `one complex event in ${n.toLocaleString("en")}`;
    const is_cut = rows.columns.some((column) => column.values.some((value) => value && value.length >= 120));
    return [
      !held.most_at_an_end && step > 1 && `There are too many complex events for one page: it draws ${nth(step)}, spread evenly, and estimates ` +
        "counts over time and durations from these. The counts of partitions are of all.",
      rows.step > 1 && `It holds the rows of ${nth(rows.step)}.`,
      rows.most >= 200 && "Of one complex event it holds the first 200 rows.",
      rows.n_columns > rows.columns.length && `It holds the first ${rows.columns.length} of ${rows.n_columns} columns.`,
      is_cut && "Values of rows are cut after 120 characters.",
      held.labels.length < held.n_partitions &&
        `It names ${held.labels.length.toLocaleString("en")} of ${counted(held.n_partitions, "partition")}.`,
    ].filter(Boolean);
  }

  // ---- data -------------------------------------------------------------------------------------------------------

  function unpack({ type, unit, data }) {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    const values = new { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array }[type](bytes.buffer);
    return unit === 1 ? values : Float64Array.from(values, (value) => value * unit);
  }

  const { axis, labels, rows } = held;
  if (held.most_at_an_end) {
    $("some").textContent = "There are too many complex events to list: of those that end at one event, at most " +
      `${held.most_at_an_end.toLocaleString("en")} are listed, ${held.n_listed.toLocaleString("en")} in all` +
      (held.step > 1 ? `, and one in ${held.step.toLocaleString("en")} of these is drawn` : "") +
      ". They tell nothing about the duration of the others. " +
      (held.n_matches === null ? "Counts below are of those listed." : "Counts over time and of partitions stand for all.");
    $("lengths-title").textContent = "How long those listed last";
  }
  const from = unpack(held.matches.from);
  const length = unpack(held.matches.length);
  const first = unpack(held.matches.start);
  const span = unpack(held.matches.span);
  const size = unpack(held.matches.n);
  const partition = unpack(held.matches.partition);
  const stands_for = held.matches.stands_for && unpack(held.matches.stands_for);
  const counts = unpack(held.counts);
  const ends = unpack(rows.ends);
  const references = unpack(rows.references);
  const roles = unpack(rows.roles);
  const positions = unpack(rows.positions);
  const columns = rows.columns.map((column) => ({ ...column, codes: unpack(column.codes) }));
  const n = from.length;
  const by_start = Uint32Array.from(from.keys()).sort((a, b) => from[a] - from[b] || a - b);
  const extent = [from[by_start[0]], from.reduce((most, value, i) => Math.max(most, value + length[i]), -Infinity)];
  const has_rows = (i) => (i * held.step) % rows.step === 0;

  // ---- numbers, moments and durations as text ---------------------------------------------------------------------

  const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
  const is_time = axis.kind === "moment" || axis.kind === "duration";
  const origin = BigInt(axis.origin);
  const two = (value) => String(value).padStart(2, "0");
  const plain = (value) => (origin + BigInt(Math.round(value))).toLocaleString("en");

  function durationText(ms) {
    if (ms < 0) return `-${durationText(-ms)}`;
    if (ms < SECOND) return `${+ms.toPrecision(6)} ms`;
    if (ms < MINUTE) return `${+(ms / SECOND).toFixed(3)} s`;
    const units = [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"], [SECOND, "s"]];
    const greatest = units.findIndex(([unit]) => ms >= unit);
    let left = Math.round(ms / SECOND) * SECOND;
    const parts = units.slice(greatest, greatest + 2).map(([unit, name]) => {
      const whole = Math.floor(left / unit);
      left -= whole * unit;
      return whole ? `${whole.toLocaleString("en")} ${name}` : "";
    });
    return parts.filter(Boolean).join(" ");
  }

  const lengthText = (value) => is_time ? (value ? durationText(value) : "0") :
    `${value.toLocaleString("en")}${axis.kind === "number" ? (axis.unit && ` ${axis.unit}`) : value === 1 ? " position" : " positions"}`;

  /** A point on the axis in full. */
  function pointText(value) {
    if (axis.kind === "duration") return durationText(Number(origin) + value);
    if (axis.kind !== "moment") return `${plain(value)}${axis.unit && ` ${axis.unit}`}`;
    const whole = Math.floor(value);
    const date = new Date(Number(origin) + whole);
    if (isNaN(date)) return `${plain(value)} ms`;
    const fraction = value - whole ? (value - whole).toFixed(6).slice(2).replace(/0+$/, "") : "";
    return date.toISOString().replace("T", " ").replace(/\.000Z$/, fraction ? ".000Z" : "Z").replace("Z", fraction + axis.unit);
  }

  /** An edge of the view: a point that no complex event may have, to the second where more is seen than a minute. */
  function edgeText(value) {
    const unit = view[1] - view[0] > MINUTE ? SECOND : 1;
    return pointText(is_time && !extent.includes(value) ? Math.round((Number(origin) + value) / unit) * unit - Number(origin) : value);
  }

  const FIXED = [0.001, 0.01, 0.1, 1, 2, 5, 10, 20, 50, 100, 200, 500, ...[1, 2, 5, 10, 15, 30].map((s) => s * SECOND),
    ...[1, 2, 5, 10, 15, 30].map((m) => m * MINUTE), ...[1, 2, 3, 6, 12].map((h) => h * HOUR), DAY, 2 * DAY, 7 * DAY, 14 * DAY];

  /** The least round number that is not less. */
  function round(least) {
    if (is_time && least <= FIXED.at(-1)) return FIXED.find((step) => step >= least);
    if (is_time) return Math.max(round10(least / DAY), 20) * DAY;
    return Math.max(1, round10(least));
  }

  function round10(least) {
    const power = 10 ** Math.floor(Math.log10(least));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= least * 0.999999);
  }

  /** About so many marks on a part of the axis: [value, text]. */
  function ticks(low, high, wanted) {
    const least = (high - low) / Math.max(wanted, 1);
    if (axis.kind === "moment" && least > 14 * DAY) return months(low, high, least);
    if (axis.kind === "moment" && isNaN(new Date(Number(origin) + low) - new Date(Number(origin) + high))) return [];
    const step = round(least);
    const base = is_time ? Number(origin) : Number(origin % BigInt(step));
    const made = [];
    for (let i = Math.ceil((low + base) / step); i * step - base <= high && made.length < 50; i++) {
      made.push([i * step - base, tickText(i * step - base, step, !made.length)]);
    }
    return made;
  }

  function months(low, high, least) {
    const per = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000, 12000, 120000].find((m) => m * 30 * DAY >= least) || 1e6;
    const begin = new Date(Number(origin) + low);
    let month = Math.floor((begin.getUTCFullYear() * 12 + begin.getUTCMonth()) / per) * per;
    const made = [];
    for (; made.length < 50; month += per) {
      const date = new Date(0);
      date.setUTCFullYear(Math.floor(month / 12), month % 12, 1);
      const value = date.getTime() - Number(origin);
      if (!(value <= high)) break;
      const year = date.toISOString().replace(/-\d\d-\d\dT.*/, "");
      if (value >= low) made.push([value, per % 12 ? `${year}-${two((month % 12) + 1)}` : year]);
    }
    return made;
  }

  function tickText(value, step, is_first) {
    if (axis.kind === "duration") return durationText(Number(origin) + value) || "0";
    if (axis.kind !== "moment") return plain(value);
    const text = new Date(Number(origin) + value).toISOString();
    const [day, time] = [text.slice(0, -14), text.slice(-13, -1)];
    if (step >= DAY) return day;
    const clock = step >= MINUTE ? time.slice(0, 5) : step >= SECOND ? time.slice(0, 8) : time;
    return is_first ? `${day} ${clock}` : time === "00:00:00.000" ? day : clock;
  }

  // ---- which are shown --------------------------------------------------------------------------------------------

  const LANE = 24, GAP = 6, FOOT = 22; // at most of a lane; above them; below, for the axis
  let wanted = null; // of each partition, whether it is shown; null: all
  let shown, lane, latest; // complex events by their start; the lane of each; the latest end so far
  let view = padded(extent);
  let chosen = -1;

  function padded([low, high]) {
    const more = (high - low) * 0.01 || (is_time ? SECOND : 1);
    return [low - more, high + more];
  }

  /** Show the partitions that the filter names, and stack what overlaps: each complex event lies in the lowest free lane. */
  function choose() {
    shown = wanted ? by_start.filter((i) => wanted[partition[i]]) : by_start;
    lane = new Uint32Array(shown.length);
    latest = new Float64Array(shown.length);
    const busy = new Heap((a, b) => a.end - b.end);
    const free = new Heap((a, b) => a - b);
    let n_lanes = 0;
    shown.forEach((i, k) => {
      while (busy.size && busy.least.end < from[i]) free.push(busy.pop().lane);
      lane[k] = free.size ? free.pop() : n_lanes++;
      busy.push({ end: from[i] + length[i], lane: lane[k] });
      latest[k] = Math.max(k ? latest[k - 1] : -Infinity, from[i] + length[i]);
    });
    // few lanes need no more room than theirs; the page does not move while partitions are filtered
    if (!wanted) $("timeline").style.height = n_lanes < 11 ? `${Math.max(n_lanes, 3) * LANE + GAP + FOOT}px` : "";
  }

  class Heap {
    constructor(compare) {
      this.items = [];
      this.compare = compare;
    }
    get size() { return this.items.length; }
    get least() { return this.items[0]; }
    push(item) {
      const { items, compare } = this;
      let at = items.length;
      for (let up = (at - 1) >> 1; at && compare(item, items[up]) < 0; at = up, up = (at - 1) >> 1) items[at] = items[up];
      items[at] = item;
    }
    pop() {
      const { items, compare } = this;
      const least = items[0], item = items.pop();
      if (!items.length) return least;
      let at = 0;
      for (let down = 1; down < items.length; down = 2 * at + 1) {
        if (down + 1 < items.length && compare(items[down + 1], items[down]) < 0) down++;
        if (compare(items[down], item) >= 0) break;
        items[at] = items[down];
        at = down;
      }
      items[at] = item;
      return least;
    }
  }

  /** The first k below n for which a test, false and then true, is true. */
  function search(n, test) {
    let low = 0, high = n;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (test(middle)) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Between which two places in `shown` everything in view lies. */
  function inView() {
    return [search(shown.length, (k) => latest[k] >= view[0]), search(shown.length, (k) => from[shown[k]] > view[1])];
  }

  // ---- drawing ----------------------------------------------------------------------------------------------------

  let drawn = {}; // where what was last drawn lies
  let due = 0; // 1: what depends on the view; 2: everything

  function draw(what = 2) {
    if (!due) {
      requestAnimationFrame(() => {
        if (gone.signal.aborted) return;
        drawTimeline();
        drawOver(due === 2);
        if (due === 2) drawLengths();
        due = 0;
      });
    }
    due = Math.max(due, what);
  }

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  /** A canvas that is clean and as sharp as the screen, and its size. */
  function prepare(canvas) {
    const { clientWidth: width, clientHeight: height } = canvas;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    return { pen, width, height: height - FOOT };
  }

  function drawAxis({ pen, width, height }, marks, place) {
    pen.strokeStyle = colour("line");
    pen.fillStyle = colour("dim");
    pen.beginPath();
    pen.moveTo(0, height + 0.5);
    pen.lineTo(width, height + 0.5);
    let free = 0;
    for (const [value, text] of marks) {
      const x = Math.round(place(value)) + 0.5;
      pen.moveTo(x, 0);
      pen.lineTo(x, height + 4);
      const wide = pen.measureText(text).width;
      const left = Math.min(Math.max(x - wide / 2, 0), width - wide);
      if (left < free) continue;
      pen.fillText(text, left, height + 16);
      free = left + wide + 10;
    }
    pen.stroke();
  }

  function drawTimeline() {
    const area = prepare($("timeline"));
    const { pen, width, height } = area;
    const scale = width / (view[1] - view[0]);
    const place = (value) => (value - view[0]) * scale;
    drawAxis(area, ticks(view[0], view[1], width / 110), place);
    const [low, high] = inView();
    let n_lanes = 1, n_visible = 0;
    for (let k = low; k < high; k++) {
      if (from[shown[k]] + length[shown[k]] < view[0]) continue;
      n_visible++;
      if (lane[k] >= n_lanes) n_lanes = lane[k] + 1;
    }
    const tall = Math.min(LANE, (height - GAP) / n_lanes); // of a lane
    drawn = { low, high, place, tall, height };
    if (n_visible <= 3000 && tall >= 3) drawEach(pen);
    else drawDensity(pen, width, n_lanes);
    const at = chosen < 0 ? -1 : shownPlace(chosen);
    if (at >= low && at < high) {
      const [x, y, wide, high] = box(at, 3, 4);
      pen.fillStyle = colour("mark");
      pen.globalAlpha = 0.15;
      pen.fillRect(x, 0, wide, height);
      pen.globalAlpha = 1;
      pen.fillRect(x, y, wide, high);
    }
    const all = counted(shown.length, "complex event") + (held.step > 1 || stands_for ? " drawn" : "") + (wanted ? " of this filter" : "");
    $("view").textContent = `${n_visible.toLocaleString("en")} of ${all} in view, ` +
      `from ${edgeText(Math.max(view[0], extent[0]))} to ${edgeText(Math.min(view[1], extent[1]))}`;
  }

  /** Where the one at place k in `shown` lies: x, y, width, height, which are at least so much. */
  function box(k, least_width, least_height) {
    const { place, tall, height } = drawn;
    const x = place(from[shown[k]]);
    const wide = Math.max(place(from[shown[k]] + length[shown[k]]) - x, least_width);
    const gap = tall > 5 ? 1.5 : 0.5;
    const high = Math.max(tall - gap, least_height);
    return [x, height - (lane[k] + 0.5) * tall - high / 2, wide, high];
  }

  function drawEach(pen) {
    pen.fillStyle = colour("bar");
    pen.globalAlpha = 0.8;
    pen.beginPath();
    for (let k = drawn.low; k < drawn.high; k++) pen.rect(...box(k, 2, 2));
    pen.fill();
    pen.globalAlpha = 1;
  }

  /** Too many to tell apart: each cell of a grid is as dark as there are complex events in it. */
  function drawDensity(pen, width, n_lanes) {
    const { low, high, place, tall, height } = drawn;
    const n_columns = Math.max(1, Math.floor(width));
    const n_rows = Math.min(n_lanes, Math.floor(height / 2));
    const stride = n_columns + 1;
    const changes = new Int32Array(stride * n_rows);
    for (let k = low; k < high; k++) {
      const i = shown[k];
      const right = place(from[i] + length[i]);
      if (right < 0) continue;
      const row = Math.floor((lane[k] * n_rows) / n_lanes) * stride;
      changes[row + Math.max(0, Math.min(n_columns - 1, Math.floor(place(from[i]))))]++;
      changes[row + Math.min(n_columns, Math.floor(right) + 1)]--;
    }
    let most = 1;
    for (let row = 0; row < n_rows; row++) {
      for (let at = row * stride + 1; at < (row + 1) * stride; at++) {
        changes[at] += changes[at - 1];
        if (changes[at] > most) most = changes[at];
      }
    }
    const [red, green, blue] = rgb(colour("bar"));
    const image = new ImageData(n_columns, n_rows);
    for (let row = 0; row < n_rows; row++) {
      for (let column = 0; column < n_columns; column++) {
        const count = changes[row * stride + column];
        if (count > 0) {
          const alpha = most === 1 ? 200 : 70 + (185 * Math.log(count)) / Math.log(most);
          image.data.set([red, green, blue, alpha], 4 * ((n_rows - 1 - row) * n_columns + column));
        }
      }
    }
    const small = document.createElement("canvas");
    small.width = n_columns;
    small.height = n_rows;
    small.getContext("2d").putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, height - tall * n_lanes, n_columns, tall * n_lanes);
  }

  const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));

  let bins = [];

  function drawOver(is_new) {
    const area = prepare($("over"));
    const { pen, width, height } = area;
    const [low, high] = padded(extent);
    if (is_new) {
      bins = new Array(Math.max(1, Math.floor(width / 5))).fill(0);
      for (const i of shown) {
        bins[Math.floor(((from[i] + length[i] - low) / (high - low)) * bins.length)] += stands_for ? stands_for[i] : 1;
      }
    }
    const n_bins = bins.length;
    const most = Math.max(1, ...bins);
    const place = (value) => ((value - low) / (high - low)) * width;
    pen.fillStyle = colour("soft");
    pen.fillRect(place(view[0]), 0, place(view[1]) - place(view[0]), height);
    drawAxis(area, ticks(low, high, width / 110), place);
    pen.fillStyle = colour("bar");
    bins.forEach((count, at) => {
      const high = count && Math.max(1.5, (count / most) * (height - 14));
      pen.fillRect((at * width) / n_bins, height - high, width / n_bins - 1, high);
    });
    pen.fillStyle = colour("dim");
    pen.fillText(`${held.step > 1 ? "about " : ""}${Math.round(most * held.step).toLocaleString("en")}`, 2, 10);
  }

  function drawLengths() {
    const area = prepare($("lengths"));
    const { pen, width, height } = area;
    const sorted = Float64Array.from(shown, (i) => length[i]).sort();
    if (!sorted.length) {
      $("lengths-text").textContent = "";
      return;
    }
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    const longest = sorted.at(-1);
    const cap = longest > 4 * at(0.99) && at(0.99) ? at(0.99) : longest;
    const step = round(Math.max(cap, is_time ? 0.001 : 1) / 30);
    const n_bins = Math.floor(cap / step) + 1 + (cap < longest);
    const bins = new Float64Array(n_bins);
    for (const value of sorted) bins[Math.min(n_bins - 1, Math.floor(value / step))]++;
    const most = Math.max(...bins);
    const wide = width / n_bins;
    const every = Math.max(1, Math.ceil(90 / wide));
    const marks = [];
    const isolated = !is_time && step === 1; // each bar is one length
    for (let bin = 0; bin < n_bins; bin += every) {
      const text = is_time ? lengthText(bin * step) : (bin * step).toLocaleString("en");
      marks.push([(bin + (isolated ? 0.5 : 0)) * wide, text]);
    }
    drawAxis(area, marks, (value) => value);
    bins.forEach((count, bin) => {
      const high = count && Math.max(1.5, (count / most) * (height - 14));
      pen.fillStyle = colour(cap < longest && bin === n_bins - 1 ? "dim" : "bar");
      pen.fillRect(bin * wide, height - high, Math.max(1, wide - 1.5), high);
    });
    pen.fillStyle = colour("dim");
    const scale = stands_for ? 1 : held.step; // those listed of an end do not stand for the duration of the others
    pen.fillText(`${scale > 1 ? "about " : ""}${(most * scale).toLocaleString("en")}`, 2, 10);
    $("lengths-text").textContent = `shortest ${lengthText(sorted[0])}, median ${lengthText(at(0.5))}, ` +
      `nine in ten at most ${lengthText(at(0.9))}, longest ${lengthText(longest)}` +
      (cap < longest ? "; the last bar holds all that are longer" : "");
  }

  // ---- the one that is chosen -------------------------------------------------------------------------------------

  function shownPlace(i) {
    let k = search(shown.length, (k) => from[shown[k]] > from[i] || (from[shown[k]] === from[i] && shown[k] >= i));
    return shown[k] === i ? k : -1;
  }

  /** The place in `shown` of what lies at a point of the timeline; one whose rows are here rather than another. */
  function pick(x, y) {
    let best = -1, least = Infinity;
    for (let k = drawn.low; k < drawn.high; k++) {
      const [left, top, wide, high] = box(k, 2, 2);
      const across = Math.max(left - x, x - left - wide, 0);
      const along = Math.max(top - y, y - top - high, 0);
      if (across > 4 || along > 4) continue;
      const far = across + along + (has_rows(shown[k]) ? 0 : 8);
      if (far < least) [best, least] = [k, far];
    }
    return best;
  }

  function show(i) {
    chosen = i;
    const number = i * held.step;
    $("chosen").hidden = false;
    $("chosen-title").textContent = `Complex event ${(number + 1).toLocaleString("en")} of ${held.n_listed.toLocaleString("en")}` +
      (stands_for ? " listed" : "");
    facts($("chosen-facts"), [
      ...(labels.length ? [[held.keys.join(", "), labels[partition[i]]]] : []),
      ...(axis.kind === "position" ? [] : [["from", pointText(from[i])], ["to", pointText(from[i] + length[i])]]),
      ["lasts", lengthText(length[i])],
      ["positions", `${first[i].toLocaleString("en")} to ${(first[i] + span[i]).toLocaleString("en")}`],
      ["events kept", size[i].toLocaleString("en")],
    ]);
    showRows(i, number);
    const end = from[i] + length[i];
    if (end < view[0] || from[i] > view[1]) look(view.map((value) => value + (from[i] + end - view[0] - view[1]) / 2));
    draw(1);
  }

  function showRows(i, number) {
    const at = number / rows.step;
    const [begin, end] = has_rows(i) ? [at ? ends[at - 1] : 0, ends[at]] : [0, 0];
    const names = begin < end && rows.role_names.length > 1 ? ["position", "variable"] : ["position"];
    const head = element("tr", [...names, ...columns.map((column) => column.name)].map((name) => element("th", name)));
    const lines = [];
    for (let k = begin; k < end; k++) {
      const row = references[k];
      const cells = [element("td", positions[row].toLocaleString("en"))];
      if (names.length > 1) cells.push(element("td", rows.role_names[roles[k]], "role"));
      for (const { values, codes } of columns) {
        cells.push(cell(values[codes[row]]));
      }
      lines.push(element("tr", cells));
    }
    $("rows").replaceChildren(...(lines.length ? [element("thead", [head]), element("tbody", lines)] : []));
    $("chosen-note").textContent = !size[i] ? "The query keeps none of its rows."
      : !lines.length ? "Its rows are not on this page."
      : lines.length < size[i] ? `The first ${lines.length} of its ${size[i].toLocaleString("en")} rows:` : "";
  }

  function step(by) {
    for (let i = chosen + by; i >= 0 && i < n; i += by) {
      if (has_rows(i) && (!wanted || wanted[partition[i]])) return show(i);
    }
  }

  // ---- what the user does -----------------------------------------------------------------------------------------

  /** Show a part of the axis, as far as there is something. */
  function look([low, high]) {
    const [least, most] = padded(extent);
    const smallest = Math.min((most - least) / 4, Math.max((most - least) * 1e-9, is_time ? 1 : 2));
    const wide = Math.min(Math.max(high - low, smallest), most - least);
    low = Math.min(Math.max((low + high - wide) / 2, least), most - wide);
    view = [low, low + wide];
    draw(1);
  }

  function zoom(factor, share = 0.5) {
    const wide = view[1] - view[0], at = view[0] + wide * share;
    look([at - wide * factor * share, at + wide * factor * (1 - share)]);
  }

  const move = (share) => look(view.map((value) => value + (view[1] - view[0]) * share));

  function filter() {
    const text = $("filter").value.trim();
    const folded = text.toLowerCase();
    const exact = labels.includes(text);
    wanted = text ? labels.map((label) => exact ? label === text : label.toLowerCase().includes(folded)) : null;
    for (const button of $("partitions").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(exact && button.firstChild.textContent === text));
    }
    choose();
    draw();
  }

  function showPartitions() {
    if (!labels.length) {
      $("most").hidden = $("filtering").hidden = true;
      return;
    }
    $("partitions").append(...labels.slice(0, 10).map((label, code) => {
      const button = element("button", [element("span", label), element("span", counts[code].toLocaleString("en"))]);
      button.type = "button";
      button.title = "Show this one alone, or all again";
      button.style.setProperty("--share", counts[code] / counts[0]);
      button.addEventListener("click", () => {
        $("filter").value = $("filter").value === label ? "" : label;
        filter();
      });
      return element("li", [button]);
    }));
  }

  /** Call back while the pointer is dragged over a canvas, with where it began and is; and where it is let go at once. */
  function dragging(canvas, dragged, clicked) {
    let begin = null, moved = false;
    const place = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      [begin, moved] = [{ at: place(event), view: [...view] }, false];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!begin) return;
      moved ||= Math.hypot(event.offsetX - begin.at[0], event.offsetY - begin.at[1]) > 4;
      if (moved) dragged(begin, place(event));
    });
    canvas.addEventListener("pointerup", (event) => {
      if (begin && !moved) clicked(...place(event));
      begin = null;
    });
    canvas.addEventListener("pointercancel", () => { begin = null; });
  }

  const tip = element("div");
  tip.id = "tip";
  tip.hidden = true;
  $("page").append(tip);

  function point(event) {
    const k = event.buttons ? -1 : pick(event.offsetX, event.offsetY);
    tip.hidden = k < 0;
    $("timeline").style.cursor = k < 0 ? "grab" : "pointer";
    if (k < 0) return;
    const i = shown[k];
    tip.textContent = [
      ...(labels.length ? [labels[partition[i]]] : []),
      `${pointText(from[i])} to ${pointText(from[i] + length[i])}`,
      `${lengthText(length[i])}, ${counted(size[i], "event")}`,
    ].join("\n");
    tip.style.left = `${Math.min(event.pageX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.pageY + 18}px`;
  }

  dragging($("timeline"), (begin, [x]) => {
    const by = ((begin.at[0] - x) / $("timeline").clientWidth) * (begin.view[1] - begin.view[0]);
    look(begin.view.map((value) => value + by));
  }, (x, y) => {
    const k = pick(x, y);
    if (k >= 0) show(shown[k]);
  });
  const onOver = (x) => padded(extent)[0] + (x / $("over").clientWidth) * (padded(extent)[1] - padded(extent)[0]);
  dragging($("over"), (begin, [x]) => look([begin.at[0], x].sort((a, b) => a - b).map(onOver)), (x) => {
    const half = (view[1] - view[0]) / 2;
    look([onOver(x) - half, onOver(x) + half]);
  });
  $("timeline").addEventListener("pointermove", point);
  $("timeline").addEventListener("pointerleave", () => { tip.hidden = true; });
  $("timeline").addEventListener("wheel", (event) => {
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) zoom(2 ** (event.deltaY / 200), event.offsetX / $("timeline").clientWidth);
    else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) move(across / $("timeline").clientWidth);
    else return; // the page scrolls
    event.preventDefault();
  }, { passive: false });
  $("timeline").addEventListener("keydown", (event) => {
    const does = {
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": () => look(padded(extent)),
      ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2),
    }[event.key];
    if (!does || event.ctrlKey || event.metaKey || event.altKey) return;
    does();
    event.preventDefault();
  });
  $("in").addEventListener("click", () => zoom(0.6));
  $("out").addEventListener("click", () => zoom(1 / 0.6));
  $("all").addEventListener("click", () => look(padded(extent)));
  $("filter").addEventListener("input", filter);
  $("previous").addEventListener("click", () => step(-1));
  $("next").addEventListener("click", () => step(1));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(), { signal: gone.signal });
  const resized = new ResizeObserver(() => draw());
  resized.observe(document.body);
  gone.signal.addEventListener("abort", () => resized.disconnect());

  choose();
  showPartitions();
  show(0);
  return () => gone.abort();
}

// ---- the queries ----------------------------------------------------------------------------------------------------

(() => {
  const all = JSON.parse($("held").textContent);
  let close = () => {};

  function open(at) {
    close();
    $("page").replaceChildren($("page-of-one").content.cloneNode(true));
    if (all.length > 1) {
      $("name").textContent = all[at].name;
      $("of-query").hidden = false;
      for (const [i, row] of [...$("list").tBodies[0].rows].entries()) row.ariaCurrent = i === at ? "true" : null;
    }
    close = showPage(all[at], $(all.length > 1 ? "own-facts" : "facts"));
  }

  if (all.length > 1) {
    const found = all.filter((held) => held.n_matches !== 0);
    facts($("facts"), [
      ["queries", all.length.toLocaleString("en")],
      ["found something", found.length.toLocaleString("en")],
      ["events read", Math.max(...all.map((held) => held.n_events)).toLocaleString("en")],
    ]);
    const most = Math.max(...all.map((held) => held.n_matches ?? 2 ** 63));
    const head = element("tr", [element("th", "query"), element("th", "complex events", "number"), element("th")]);
    const lines = all.map((held, at) => {
      const button = element("button", held.name);
      button.type = "button";
      button.addEventListener("click", () => { location.hash = encodeURIComponent(held.name); });
      const bar = element("div", "", "share");
      // a bar of one hundredth is the narrowest that can be seen
      bar.style.setProperty("--share", held.n_matches === 0 ? 0 : Math.max(0.01, (held.n_matches ?? most) / most));
      return element("tr", [element("td", button), element("td", held.found, "number"), element("td", bar, "wide")]);
    });
    $("list").append(element("thead", head), element("tbody", lines));
    $("queries").hidden = false;
  }
  const named = () => all.findIndex((held) => encodeURIComponent(held.name) === location.hash.slice(1));
  const first = Math.max(0, all.findIndex((held) => held.n_matches !== 0));
  addEventListener("hashchange", () => open(named() < 0 ? first : named()));
  open(named() < 0 ? first : named());
})();
