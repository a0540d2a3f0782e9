
// ---- the list of matches -----------------------------------------------------------------------------------

const ROW = 29, MORE = 12; // height of a row; rows that are made above and below those in sight

/** The columns of the list: {name, id, isNumber, text(i), plain(i), keys()}; they are sorted by keys, NaN last. */
function columnsOf(data) {
  const { axis, from, length, first, span, size, partition } = data;
  const numbers = (value) => () => Float64Array.from({ length: data.n }, (_, i) => value(i));
  const number = (name, id, value, text = (i) => grouped(value(i))) =>
    ({ name, id, isNumber: true, text, plain: (i) => String(value(i)), keys: numbers(value) });
  const point = (name, value) =>
    ({ get name() { return axis.headed(name); }, id: `${name}_time`, isNumber: axis.kind !== "moment", text: (i) => axis.pointText(value(i)), plain: (i) => axis.pointText(value(i)), keys: numbers(value) });
  const start = (i) => first[i], end = (i) => first[i] + span[i];
  const lasts = { name: axis.msOfLength ? "duration" : "length", id: axis.kind === "duration" || axis.kind === "moment" ? "duration_ms" : "length",
    isNumber: true, text: (i) => axis.lengthText(length[i]), plain: (i) => String(length[i]), keys: numbers((i) => length[i]) };
  const key = (name, at) => ({ name, id: name, isNumber: false, text: (i) => data.keyValues[partition[i]][at],
    plain: (i) => data.keyValues[partition[i]][at], keys: ranked(data.keyValues.map((values) => values[at]), partition) });
  return [
    number("#", "number", (i) => data.number(i)),
    ...(axis.kind === "position" ? [] : [point("start", (i) => from[i]), point("end", (i) => data.end(i))]),
    ...(axis.kind === "position" ? [number("start", "start", start), number("end", "end", end)] :
      [number("start", "start", start), number("end", "end", end)].map((column) => ({ ...column, isExported: true }))),
    lasts,
    number("events", "events", (i) => size[i]),
    ...data.held.keys.map(key),
    ...data.measures.map(({ name, isText, values, codes, text, number: numberOf }) => ({
      name, id: name, isNumber: !isText, text: (i) => text(codes[i]), plain: (i) => values[codes[i]] ?? "",
      keys: isText ? ranked(values, codes) : () => Float64Array.from(codes, numberOf),
    })),
  ];
}

/** Sort keys of texts: their ranks, numbers within them by their value. */
function ranked(texts, codes) {
  return () => {
    const { compare } = new Intl.Collator("en", { numeric: true });
    const ranks = new Float64Array(texts.length).fill(NaN);
    const order = [...texts.keys()].filter((code) => texts[code] !== null).sort((a, b) => compare(texts[a], texts[b]));
    order.forEach((code, at) => { ranks[code] = at && texts[code] === texts[order[at - 1]] ? ranks[order[at - 1]] : at; });
    return Float64Array.from(codes, (code) => ranks[code]);
  };
}

/** A table of which only the rows in sight are made, however long it is. */
class List {
  constructor(data, scroller, table, choose) {
    Object.assign(this, { data, scroller, table, choose, chosen: -1, sorted: { at: 0, isDown: false } });
    this.columns = columnsOf(data);
    this.heads = this.columns.map((column, at) => {
      const button = element("button", column.name);
      button.type = "button";
      button.addEventListener("click", () => this.sort(at));
      const head = element("th", button, column.isNumber ? "number" : "");
      head.scope = "col";
      return head;
    });
    this.shownColumns = [...this.columns.keys()].filter((at) => !this.columns[at].isExported);
    this.body = element("tbody");
    table.replaceChildren(element("thead", element("tr", this.shownColumns.map((at) => this.heads[at]))), this.body);
    scroller.addEventListener("scroll", () => this.draw());
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-i]");
      if (row) choose(Number(row.dataset.i));
    });
    table.addEventListener("keydown", (event) => {
      const sight = Math.max(1, Math.floor(scroller.clientHeight / ROW) - 2);
      const to = { ArrowDown: () => this.step(1), ArrowUp: () => this.step(-1), PageDown: () => this.step(sight), PageUp: () => this.step(-sight),
        Home: () => this.step(-Infinity), End: () => this.step(Infinity) }[event.key];
      if (!to || event.target !== table || event.ctrlKey || event.metaKey || event.altKey) return;
      to();
      event.preventDefault();
    });
  }

  /** The order of the list, by the name of a column, which lists of other matches may have, too. */
  get ordering() { return { id: this.columns[this.sorted.at].id, isDown: this.sorted.isDown }; }

  set ordering({ id, isDown }) {
    const at = this.columns.findIndex((column) => column.id === id);
    if (at >= 0) this.sorted = { at, isDown };
  }

  /** Write the names of the columns again, after the zone of the times has changed. */
  rename() {
    this.heads.forEach((head, at) => { head.firstChild.textContent = visible(this.columns[at].name); });
    this.width = -1;
    this.draw();
  }

  /** List matches, in the order that was chosen last. */
  show(shown) {
    this.order = shown;
    this.arrange();
  }

  sort(at) {
    this.sorted = { at, isDown: this.sorted.at === at && !this.sorted.isDown };
    this.arrange();
  }

  arrange() {
    const { at, isDown } = this.sorted, column = this.columns[at];
    const keys = (column.sortKeys ??= column.keys());
    const sign = isDown ? -1 : 1;
    // NULL comes last in both directions
    this.order = Uint32Array.from(this.order).sort((a, b) => sign * (keys[a] - keys[b]) || isNaN(keys[a]) - isNaN(keys[b]) || a - b);
    this.heads.forEach((head, i) => head.setAttribute("aria-sort", i === at ? (isDown ? "descending" : "ascending") : "none"));
    this.places = null;
    this.scroller.scrollTop = 0;
    this.draw();
  }

  /** The place of a match in the list, or -1. */
  place(i) {
    this.places ??= new Map(Array.from(this.order, (each, at) => [each, at]));
    return this.places.get(i) ?? -1;
  }

  /** Choose the one so many places further; at the ends of the list the last. */
  step(by) {
    const n = this.order.length;
    if (!n) return;
    const at = this.place(this.chosen);
    this.choose(this.order[at < 0 ? 0 : Math.min(Math.max(at + by, 0), n - 1)]);
  }

  /** Mark the one that is chosen, and scroll it into sight. */
  mark(i) {
    this.chosen = i;
    const at = i < 0 ? -1 : this.place(i);
    const head = this.table.tHead.offsetHeight, top = at * ROW, sight = this.scroller.clientHeight - head;
    if (at >= 0 && top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (at >= 0 && top + ROW > this.scroller.scrollTop + sight) this.scroller.scrollTop = top + ROW - sight;
    this.draw();
  }

  draw() {
    if (this.width !== this.scroller.clientWidth) {
      this.width = this.scroller.clientWidth;
      for (const head of this.heads) head.style.minWidth = "";
    }
    const n = this.order.length, sight = Math.ceil(this.scroller.clientHeight / ROW);
    const begin = Math.max(0, Math.min(Math.floor(this.scroller.scrollTop / ROW) - MORE, n - sight - MORE));
    const end = Math.min(n, begin + sight + 2 * MORE);
    const rows = [];
    for (let at = begin; at < end; at++) rows.push(this.row(at));
    this.body.replaceChildren(this.space(begin), ...rows, this.space(n - end));
    this.table.setAttribute("aria-rowcount", n + 1);
    const chosen = rows[this.place(this.chosen) - begin];
    if (chosen) this.table.setAttribute("aria-activedescendant", chosen.id);
    else this.table.removeAttribute("aria-activedescendant");
    // the columns do not move while the list is scrolled
    for (const at of this.shownColumns) this.heads[at].style.minWidth = `${this.heads[at].offsetWidth}px`;
  }

  row(at) {
    const i = this.order[at];
    const row = element("tr", this.shownColumns.map((k) => {
      const { text, isNumber } = this.columns[k], value = text(i);
      return element("td", value ?? "NULL", (isNumber ? "number" : "") + (value === null ? " null" : ""));
    }));
    row.id = `match-${i}`;
    row.dataset.i = i;
    row.ariaRowIndex = at + 2;
    row.ariaSelected = String(i === this.chosen);
    return row;
  }

  space(rows) {
    const space = element("tr", [], "space");
    space.style.height = `${rows * ROW}px`;
    space.hidden = !rows;
    space.ariaHidden = "true";
    return space;
  }
}
