
// ---- the timeline -------------------------------------------------------------------------------------------------

const LANE = 24, GAP = 8; // at most of a lane; above them
const LINES_BY_KEY = 12; // of the keys with the most matches, before one for all others

/** Matches from their starts to their ends, overlapping ones above one another. */
class Timeline {
  constructor(data, canvas, words) {
    Object.assign(this, { data, canvas, words, isFiltered: false, chosen: -1, isByKey: false, lines: [] });
    this.least = padded(data.axis, data.extent);
    this.view = [...this.least];
    this.drawn = { low: 0, high: 0 };
  }

  /** Stack matches, given by their start: each lies in the line of its key, or in the lowest lane that is free. */
  stack(shown, isFiltered) {
    const { from, length } = this.data;
    const latest = new Float64Array(shown.length);
    shown.forEach((i, k) => { latest[k] = Math.max(k ? latest[k - 1] : -Infinity, from[i] + length[i]); });
    const { lane, lanes } = this.isByKey ? this.linesOfKeys(shown) : this.lowestLanes(shown);
    Object.assign(this, { shown, lane, latest, isFiltered });
    // few lanes need no more room than theirs; the page does not move while it is filtered
    if (!isFiltered) this.canvas.style.height = lanes < 11 || this.isByKey ? `${Math.max(lanes, 3) * LANE + GAP + FOOT}px` : "";
  }

  /** The lane of each match, one for each key with the most matches, the first on top, and one for all others. */
  linesOfKeys(shown) {
    const { partition, labels } = this.data, counts = new Map();
    for (const i of shown) counts.set(partition[i], (counts.get(partition[i]) ?? 0) + 1);
    const most = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([code]) => code);
    const named = most.slice(0, most.length > LINES_BY_KEY + 1 ? LINES_BY_KEY : most.length);
    this.lines = named.map((code) => labels[code]);
    if (named.length < most.length) this.lines.push(`${grouped(most.length - named.length)} others`);
    const lanes = this.lines.length, lineOf = new Map(named.map((code, at) => [code, lanes - 1 - at]));
    return { lane: Uint32Array.from(shown, (i) => lineOf.get(partition[i]) ?? 0), lanes };
  }

  lowestLanes(shown) {
    const { from, length } = this.data;
    const lane = new Uint32Array(shown.length);
    this.lines = [];
    const busy = new Heap((a, b) => a.end - b.end), free = new Heap((a, b) => a - b);
    let lanes = 0;
    shown.forEach((i, k) => {
      while (busy.size && busy.least.end < from[i]) free.push(busy.pop().lane);
      lane[k] = free.size ? free.pop() : lanes++;
      busy.push({ end: from[i] + length[i], lane: lane[k] });
    });
    return { lane, lanes };
  }

  /** Show a part of the axis, as far as there is something. */
  look([low, high]) {
    const [least, most] = this.least;
    const smallest = Math.min((most - least) / 4, Math.max((most - least) * 1e-9, this.data.axis.isTime ? 1 : 2));
    const wide = Math.min(Math.max(high - low, smallest), most - least);
    low = Math.min(Math.max((low + high - wide) / 2, least), most - wide);
    this.view = [low, low + wide];
  }

  zoom(factor, share = 0.5) {
    const wide = this.view[1] - this.view[0], at = this.view[0] + wide * share;
    this.look([at - wide * factor * share, at + wide * factor * (1 - share)]);
  }

  move(share) { this.look(this.view.map((value) => value + (this.view[1] - this.view[0]) * share)); }

  /** Move the view to a match if it is outside. */
  reveal(i) {
    const { from } = this.data, end = this.data.end(i), [low, high] = this.view;
    if (end < low || from[i] > high) this.look(this.view.map((value) => value + (from[i] + end - low - high) / 2));
  }

  draw() {
    const { data, shown, lane, latest, view } = this, { from, axis } = data;
    const area = prepare(this.canvas), { pen, width, height } = area;
    const scale = width / (view[1] - view[0]);
    const place = (value) => (value - view[0]) * scale;
    // between these two places lies everything in view
    const low = search(shown.length, (k) => latest[k] >= view[0]);
    const high = search(shown.length, (k) => from[shown[k]] > view[1]);
    let lanes = Math.max(1, this.lines.length), visible = 0;
    for (let k = low; k < high; k++) {
      if (data.end(shown[k]) < view[0]) continue;
      visible++;
      if (lane[k] >= lanes) lanes = lane[k] + 1;
    }
    const tall = Math.min(LANE, (height - GAP) / lanes);
    this.drawn = { low, high, place, tall, height };
    if (!this.lines.length) drawCounts(area, countTicks(lanes, Math.min(6, height / 40)), (count) => count * tall);
    drawAxis(area, axis.ticks(view[0], view[1], width / 110), place);
    pen.beginPath();
    pen.rect(0, 0, width, height + 1);
    pen.clip();
    if (visible <= 3000 && tall >= 3) this.drawEach(pen);
    else this.drawDensity(pen, width, lanes);
    this.drawChosen(pen);
    this.drawLines(pen, width);
    const all = counted(shown.length, "match") + (data.held.step > 1 || data.standsFor ? " on this page" : "") +
      (this.isFiltered ? " of this search" : "");
    const edge = (value) => data.extent.includes(value) ? axis.pointText(value) : axis.edgeText(value, view[1] - view[0]);
    this.words.textContent = `${grouped(visible)} of ${all} in view, ` +
      `from ${edge(Math.max(view[0], data.extent[0]))} to ${edge(Math.min(view[1], data.extent[1]))}`;
  }

  /** Where the one at place k in `shown` lies: x, y, width, height, which are at least so much. */
  box(k, leastWidth, leastHeight) {
    const { place, tall, height } = this.drawn, i = this.shown[k];
    const x = place(this.data.from[i]);
    const high = Math.max(tall - (tall > 5 ? 1.5 : 0.5), leastHeight);
    return [x, height - (this.lane[k] + 0.5) * tall - high / 2, Math.max(place(this.data.end(i)) - x, leastWidth), high];
  }

  drawEach(pen) {
    pen.fillStyle = colour("bar");
    pen.globalAlpha = 0.8;
    pen.beginPath();
    for (let k = this.drawn.low; k < this.drawn.high; k++) pen.rect(...this.box(k, 2, 2));
    pen.fill();
    pen.globalAlpha = 1;
  }

  /** The names of keys on their lines. */
  drawLines(pen, width) {
    const { tall, height } = this.drawn;
    this.lines.forEach((name, at) => {
      const y = height - (this.lines.length - at) * tall, text = visible(name);
      const wide = Math.min(pen.measureText(text).width, width / 3);
      pen.globalAlpha = 0.85;
      pen.fillStyle = colour("card");
      pen.fillRect(0, y + 1, wide + 8, 15);
      pen.globalAlpha = 1;
      pen.fillStyle = colour("dim");
      pen.fillText(text, 4, y + 12, wide);
      pen.fillStyle = colour("line");
      pen.fillRect(0, y, width, 0.5);
    });
  }

  drawChosen(pen) {
    const { from } = this.data, { shown, chosen } = this;
    if (chosen < 0) return;
    const at = search(shown.length, (k) => from[shown[k]] > from[chosen] || (from[shown[k]] === from[chosen] && shown[k] >= chosen));
    if (shown[at] !== chosen || at < this.drawn.low || at >= this.drawn.high) return;
    const [x, y, wide, high] = this.box(at, 3, 4);
    pen.fillStyle = colour("mark");
    pen.globalAlpha = 0.15;
    pen.fillRect(x, 0, wide, this.drawn.height);
    pen.globalAlpha = 1;
    pen.fillRect(x, y, wide, high);
  }

  /** Too many to tell apart: each cell of a grid is as dark as there are matches in it. */
  drawDensity(pen, width, lanes) {
    const { low, high, place, tall, height } = this.drawn;
    const columns = Math.max(1, Math.floor(width));
    const rows = Math.max(1, Math.min(lanes, Math.floor(height / 2)));
    const stride = columns + 1;
    const changes = new Int32Array(stride * rows);
    for (let k = low; k < high; k++) {
      const i = this.shown[k];
      const right = place(this.data.end(i));
      if (right < 0) continue;
      const row = Math.floor((this.lane[k] * rows) / lanes) * stride;
      changes[row + Math.max(0, Math.min(columns - 1, Math.floor(place(this.data.from[i]))))]++;
      changes[row + Math.min(columns, Math.floor(right) + 1)]--;
    }
    let most = 1;
    for (let row = 0; row < rows; row++) {
      for (let at = row * stride + 1; at < (row + 1) * stride; at++) {
        changes[at] += changes[at - 1];
        if (changes[at] > most) most = changes[at];
      }
    }
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour("bar").slice(at, at + 2), 16));
    const image = new ImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const count = changes[row * stride + column];
        if (count > 0) {
          const alpha = most === 1 ? 200 : 70 + (185 * Math.log(count)) / Math.log(most);
          image.data.set([red, green, blue, alpha], 4 * ((rows - 1 - row) * columns + column));
        }
      }
    }
    const small = document.createElement("canvas");
    small.width = columns;
    small.height = rows;
    small.getContext("2d").putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, height - tall * lanes, columns, tall * lanes);
  }

  /** The match at a point of the canvas, or -1; one whose rows are here rather than another. */
  pick(x, y) {
    let best = -1, least = Infinity;
    for (let k = this.drawn.low; k < this.drawn.high; k++) {
      const [left, top, wide, high] = this.box(k, 2, 2);
      const across = Math.max(left - (x - LEFT), x - LEFT - left - wide, 0);
      const along = Math.max(top - y, y - top - high, 0);
      if (across > 4 || along > 4) continue;
      const far = across + along + (this.data.hasRows(this.shown[k]) ? 0 : 8);
      if (far < least) [best, least] = [this.shown[k], far];
    }
    return best;
  }
}
