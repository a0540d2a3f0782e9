
// ---- drawing ------------------------------------------------------------------------------------------------------

const LEFT = 44, FOOT = 22; // beside and below a chart, for its axes

const countText = (n) => n >= 100000 ? brief.format(n) : grouped(n);

/** A canvas that is clean and as sharp as the screen; the pen's (0, 0) is the upper left corner of the chart. */
function prepare(canvas) {
  const { clientWidth, clientHeight } = canvas;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(clientWidth * scale);
  canvas.height = Math.round(clientHeight * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.font = `11px ${getComputedStyle(canvas).fontFamily}`;
  pen.translate(LEFT, 0);
  return { pen, width: Math.max(clientWidth - LEFT, 1), height: clientHeight - FOOT };
}

/** Draw marks [value, text] below a chart, as far as they leave room for one another. */
function drawAxis({ pen, width, height }, marks, place) {
  pen.strokeStyle = colour("line");
  pen.fillStyle = colour("dim");
  pen.beginPath();
  pen.moveTo(0, height + 0.5);
  pen.lineTo(width, height + 0.5);
  let free = -LEFT;
  for (const [value, text] of marks) {
    const x = Math.round(place(value)) + 0.5;
    pen.moveTo(x, 0);
    pen.lineTo(x, height + 4);
    const wide = pen.measureText(text).width;
    const left = Math.min(Math.max(x - wide / 2, -LEFT), width - wide);
    if (left < free) continue;
    pen.fillText(text, left, height + 16);
    free = left + wide + 10;
  }
  pen.stroke();
}

/** Draw counts beside a chart, at heights above its foot. */
function drawCounts({ pen, width, height }, counts, place) {
  pen.strokeStyle = colour("line");
  pen.fillStyle = colour("dim");
  pen.textAlign = "right";
  pen.beginPath();
  for (const count of counts) {
    const y = Math.round(height - place(count)) + 0.5;
    pen.moveTo(-4, y);
    pen.lineTo(width, y);
    pen.fillText(countText(count), -8, Math.max(y + 4, 9));
  }
  pen.stroke();
  pen.textAlign = "left";
}

/** Draw bars of so much each, side by side. */
function drawBars({ pen, width, height }, bars, most, fill) {
  const wide = width / bars.length;
  bars.forEach((count, at) => {
    const high = count && Math.max(1.5, (count / most) * (height - 10));
    pen.fillStyle = fill(at);
    pen.fillRect(at * wide, height - high, Math.max(1, wide - (wide > 4 ? 1.5 : 1)), high);
  });
}

/** The chart of how many there are over time, by their end. */
function makeOver(data, canvas) {
  const { axis, held, standsFor } = data;
  const extent = padded(axis, data.extent);
  let bars = [];

  function count(shown) {
    bars = new Array(Math.max(1, Math.floor((canvas.clientWidth - LEFT) / 5))).fill(0);
    const [low, high] = extent;
    for (const i of shown) bars[Math.floor(((data.end(i) - low) / (high - low)) * bars.length)] += standsFor ? standsFor[i] : held.step;
  }

  function draw(view) {
    const area = prepare(canvas);
    const { pen, width, height } = area;
    const [low, high] = extent;
    const place = (value) => ((value - low) / (high - low)) * width;
    const most = bars.reduce((a, b) => Math.max(a, b), 1);
    pen.fillStyle = colour("soft");
    pen.fillRect(place(view[0]), 0, place(view[1]) - place(view[0]), height);
    drawCounts(area, countTicks(most, 5), (count) => (count / most) * (height - 10));
    drawAxis(area, axis.ticks(low, high, width / 110), place);
    drawBars(area, bars, most, () => colour("bar"));
  }

  const at = (x) => extent[0] + ((x - LEFT) / (canvas.clientWidth - LEFT)) * (extent[1] - extent[0]);
  return { count, draw, at };
}

/**
 * Draw the chart of how long those shown last, of which a range may be chosen, and tell it in words.  Return the bars as
 * ranges {low, high, text, test(length)}, null for one without any.
 */
function drawLengths(data, shown, canvas, words, chosen) {
  const { axis, held, standsFor } = data;
  const area = prepare(canvas);
  const { width } = area;
  const sorted = Float64Array.from(shown, (i) => data.length[i]).sort();
  words.textContent = "";
  if (!sorted.length) return [];
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  const longest = sorted.at(-1);
  const cap = longest > 4 * at(0.99) && at(0.99) ? at(0.99) : longest;
  const step = axis.roundLength(Math.max(cap, axis.isTime ? 0.000001 : 1) / 30);
  const bars = new Float64Array(Math.floor(cap / step) + 1 + (cap < longest));
  const scale = standsFor ? 1 : held.step; // those listed of an end do not stand for the duration of the others
  for (const value of sorted) bars[Math.min(bars.length - 1, Math.floor(value / step))] += scale;
  const most = bars.reduce((a, b) => Math.max(a, b), 1);
  const isolated = !axis.msOfLength && step === 1; // each bar is one length
  const every = axis.roundLength((step * bars.length * 80) / width); // a round step of labels, and of bars
  const place = (value) => (value / step + (isolated ? 0.5 : 0)) * (width / bars.length);
  const marks = [];
  for (let value = 0; value < bars.length * step; value += every) {
    marks.push([value, axis.msOfLength ? axis.lengthText(value) : grouped(value)]);
  }
  drawCounts(area, countTicks(most, 5), (count) => (count / most) * (area.height - 10));
  drawAxis(area, marks, place);
  const isLast = (bar) => cap < longest && bar === bars.length - 1;
  const isChosen = (bar) => !chosen || (bar * step < chosen.high && (bar + 1) * step > chosen.low);
  drawBars(area, [...bars], most, (bar) => colour(!isChosen(bar) ? "soft" : isLast(bar) ? "dim" : "bar"));
  words.textContent = `shortest ${axis.lengthText(sorted[0])}, median ${axis.lengthText(at(0.5))}, ` +
    `nine in ten at most ${axis.lengthText(at(0.9))}, longest ${axis.lengthText(longest)}` +
    (cap < longest ? "; the last bar holds all that are longer" : "");
  return Array.from(bars, (count, bar) => {
    const low = bar * step, high = isLast(bar) ? Infinity : low + step;
    const test = (length) => (isLast(bar) ? Math.floor(length / step) >= bar : Math.floor(length / step) === bar);
    const text = isolated && !isLast(bar) ? axis.lengthText(low) : high === Infinity ? `at least ${axis.lengthText(low)}` :
      `${axis.lengthText(low)} to ${axis.lengthText(high)}`;
    return count ? { low, high, text, test } : null;
  });
}

/** A part of an axis, and a little more on both sides. */
function padded(axis, [low, high]) {
  const more = (high - low) * 0.01 || (axis.isTime ? SECOND : 1);
  return [low - more, high + more];
}
