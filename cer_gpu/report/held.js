
// ---- what the page holds of one query -----------------------------------------------------------------------------

function unpack({ type, unit, data }) {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const values = new { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array }[type](bytes.buffer);
  return unit === 1 ? values : Float64Array.from(values, (value) => value * unit);
}

/** A column of strings with its codes, and how its values are shown: text(code), null for NULL; number(code), NaN for NULL. */
function unpackColumn(column) {
  const { values, is_number: isNumber, is_duration: isDuration = false } = column, zone = Zone.of(column.zone);
  const text = isDuration ? (value) => durationText(parsedDuration(value), 4) : isNumber ? groupedText :
    zone ? (value) => inZone(value, Axis.isUtc ? null : zone) : (value) => value;
  return {
    name: column.name, values, codes: unpack(column.codes), zone, isText: !isNumber && !isDuration, isShownAsIs: !isDuration && !zone,
    text: (code) => values[code] === null ? null : text(values[code]),
    number: (code) => values[code] === null ? NaN : isDuration ? parsedDuration(values[code]) : Number(values[code]),
    numberText: isDuration ? (value) => durationText(value) : (value) => groupedText(roundedText(value)),
  };
}

/** Matches, numbered i = 0, 1, ... in the order of their ends, and rows. */
class Held {
  constructor(held) {
    const { matches, rows, labels, key_values: keyValues } = held;
    this.held = held;
    this.axis = new Axis(held.axis);
    this.labels = labels;
    this.keyValues = keyValues.length ? keyValues : labels.map((label) => [label]);
    this.counts = unpack(held.counts);
    this.from = unpack(matches.from);
    this.length = unpack(matches.length);
    this.first = unpack(matches.start);
    this.span = unpack(matches.span);
    this.size = unpack(matches.n);
    this.partition = unpack(matches.partition);
    this.standsFor = matches.stands_for && unpack(matches.stands_for);
    this.n = this.from.length;
    this.columns = rows.columns.map(unpackColumn);
    this.measures = (held.measures?.columns ?? []).map(unpackColumn);
    this.positions = unpack(rows.positions);
    this.references = unpack(rows.references);
    this.roles = unpack(rows.roles);
    this.ends = unpack(rows.ends);
    this.between = unpack(rows.between);
    this.betweenEnds = unpack(rows.between_ends);
    this.betweenCut = unpack(rows.between_cut);
    this.byStart = Uint32Array.from(this.from.keys()).sort((a, b) => this.from[a] - this.from[b] || a - b);
    this.extent = [this.from[this.byStart[0]], this.from.reduce((most, value, i) => Math.max(most, value + this.length[i]), -Infinity)];
  }

  /** The number of a match among all that were listed, from 1. */
  number(i) { return i * this.held.step + 1; }

  /** The place of a match by its number; undefined: it is not on the page. */
  at(number) {
    const i = (number - 1) / this.held.step;
    return Number.isInteger(i) && i >= 0 && i < this.n ? i : undefined;
  }

  /** The zone of some times of the page that is not UTC, or "". */
  get zone() { return [this.axis.ownZone, ...[...this.measures, ...this.columns].map((column) => column.zone)].find(Boolean)?.name ?? ""; }

  end(i) { return this.from[i] + this.length[i]; }

  hasRows(i) { return (i * this.held.step) % this.held.rows.step === 0; }

  _range(i, ends) {
    const at = (i * this.held.step) / this.held.rows.step;
    return this.hasRows(i) ? [at ? ends[at - 1] : 0, ends[at]] : [0, 0];
  }

  /** The rows that a match keeps, as far as they are here: {row, role}. */
  rowsOf(i) {
    const [begin, end] = this._range(i, this.ends), made = [];
    for (let k = begin; k < end; k++) made.push({ row: this.references[k], role: this.held.rows.role_names[this.roles[k]] });
    return made;
  }

  /** The rows between its first and last that it does not keep, as far as they are here. */
  rowsBetween(i) {
    const [begin, end] = this._range(i, this.betweenEnds);
    return Array.from(this.between.subarray(begin, end), (row) => ({ row, role: null }));
  }

  hasMoreBetween(i) { return this.hasRows(i) && this.betweenCut[(i * this.held.step) / this.held.rows.step] === 1; }
}

/** What the page leaves out, as texts. */
function limitsOf(held) {
  if (held.n_matches === 0) return [];
  const { rows, measures } = held;
  const nth = (n) => `one match in ${grouped(n)}`;
  const isCut = rows.columns.some((column) => column.values.some((value) => value && value.length >= 120));
  return [
    rows.step > 1 && `The page holds the rows of ${nth(rows.step)}.`,
    rows.most >= 200 && "Of one match it holds the first 200 rows.",
    rows.cuts_between && `Of the rows between it holds ${rows.most_between ? `the first ${rows.most_between} of each` : "none"}.`,
    rows.n_columns > rows.columns.length && `It holds the first ${rows.columns.length} of ${rows.n_columns} columns.`,
    measures?.several && (measures.columns.length ? "Some matches can be read in several ways; their measures are those of the first." :
      "Its measures are not on this page: a variable has the name of another column."),
    measures?.columns.length > 0 && measures.columns.length < measures.n_columns &&
      `It holds the first ${measures.columns.length} of ${counted(measures.n_columns, "measure")}.`,
    isCut && "Values of rows are cut after 120 characters.",
    held.labels.length < held.n_partitions &&
      `It names ${grouped(held.labels.length)} of ${grouped(held.n_partitions)} ${keyNoun(held.keys, held.n_partitions)}.`,
  ].filter(Boolean);
}
