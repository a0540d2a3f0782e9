
// ---- a measure broken down by a key or a column -------------------------------------------------------------------

const GROUPS = 20, MAX_GROUPS = 5000; // shown; of a column that is offered

/** The numbers of matches that can be broken down: {name, value(i), text(value)}. */
function numbersOf({ axis, length, size, measures }) {
  return [
    ...measures.filter((column) => !column.isText).map(({ name, codes, number, numberText }) =>
      ({ name, value: (i) => number(codes[i]), text: numberText })),
    { name: axis.msOfLength ? "duration" : "length", value: (i) => length[i], text: (value) => axis.lengthText(+value.toPrecision(6)) },
    { name: "events", value: (i) => size[i], text: (value) => groupedText(roundedText(value)) },
  ];
}

/** What matches can be grouped by: {name, group(i), label(group)}; a group is -1 for one whose rows are not here. */
function groupingsOf(data) {
  const { held, keyValues, partition, measures, columns, references } = data;
  const keys = held.keys.map((name, at) => {
    const labels = [...new Set(keyValues.map((values) => values[at]))];
    const codes = new Map(labels.map((label, code) => [label, code]));
    const groups = keyValues.map((values) => codes.get(values[at]));
    return { name, group: (i) => groups[partition[i]], label: (group) => labels[group] };
  });
  const texts = measures.filter((column) => column.isText).map(({ name, codes, text }) =>
    ({ name, group: (i) => codes[i], label: (code) => text(code) ?? "NULL" }));
  const first = (i) => {
    const [begin, end] = data._range(i, data.ends);
    return begin < end ? references[begin] : -1;
  };
  const isOffered = ({ name, values, isText, zone }) => !held.keys.includes(name) && !zone && values.length > 1 &&
    values.length <= (isText ? MAX_GROUPS : 50);
  const others = columns.filter(isOffered).map(({ name, codes, text }) => ({
    name: `${name} of the first row`, isOfRows: true, label: (code) => text(code) ?? "NULL",
    group: (i) => {
      const row = first(i);
      return row < 0 ? -1 : codes[row];
    },
  }));
  return [...keys, ...texts, ...others];
}

/** A table of groups of matches: how many, and the median, mean, least and greatest of a number; a click filters. */
class Groups {
  constructor(data, choose) {
    Object.assign(this, { data, choose, numbers: numbersOf(data), groupings: groupingsOf(data), sorted: { at: 1, isDown: true } });
    $("groups-of").hidden = !this.groupings.length;
    for (const [id, options] of [["measure", this.numbers], ["grouping", this.groupings]]) {
      $(id).replaceChildren(...options.map(({ name }, at) => {
        const option = element("option", name);
        option.value = at;
        return option;
      }));
    }
    $("measure").addEventListener("change", () => this.draw());
    $("grouping").addEventListener("change", () => choose(null));
  }

  get grouping() { return this.groupings[$("grouping").value]; }

  /** Show the groups of matches, of which one may be chosen. */
  show(shown, chosen) {
    Object.assign(this, { shown, chosen });
    this.draw();
  }

  /** Each group: {group, n, values}, of which the values are sorted. */
  count() {
    const { data, grouping, shown } = this, { value } = this.numbers[$("measure").value], { held, standsFor } = data;
    const groups = new Map();
    this.nWithout = 0;
    for (const i of shown) {
      const group = grouping.group(i);
      if (group < 0) {
        this.nWithout++;
        continue;
      }
      let one = groups.get(group);
      if (!one) groups.set(group, one = { group, n: 0, values: [] });
      one.n += standsFor ? standsFor[i] : held.step;
      const number = value(i);
      if (!isNaN(number)) one.values.push(number);
    }
    return [...groups.values()].map(({ group, n, values }) => {
      const sorted = Float64Array.from(values).sort(), last = sorted.length - 1;
      const median = (sorted[Math.floor(last / 2)] + sorted[Math.ceil(last / 2)]) / 2;
      const mean = sorted.reduce((sum, each) => sum + each, 0) / sorted.length;
      return { group, label: grouping.label(group), numbers: [n, ...(last < 0 ? [NaN, NaN, NaN, NaN] : [median, mean, sorted[0], sorted[last]])] };
    });
  }

  draw() {
    if (!this.groupings.length || !this.shown) return;
    const { at, isDown } = this.sorted, sign = isDown ? -1 : 1, { name, text } = this.numbers[$("measure").value];
    const { compare } = new Intl.Collator("en", { numeric: true });
    const groups = this.count();
    const by = (a, b) => at === 0 ? sign * compare(a.label, b.label) :
      sign * (a.numbers[at - 1] - b.numbers[at - 1]) || isNaN(a.numbers[at - 1]) - isNaN(b.numbers[at - 1]);
    groups.sort((a, b) => by(a, b) || b.numbers[0] - a.numbers[0] || compare(a.label, b.label));
    const heads = [this.grouping.name, "matches", `median ${name}`, "mean", "least", "greatest"].map((title, place) => {
      const button = element("button", title);
      button.type = "button";
      button.addEventListener("click", () => {
        this.sorted = { at: place, isDown: this.sorted.at === place ? !this.sorted.isDown : place > 0 };
        this.draw();
      });
      const head = element("th", button, place ? "number" : "");
      head.scope = "col";
      head.ariaSort = place === at ? (isDown ? "descending" : "ascending") : "none";
      return head;
    });
    const lines = groups.slice(0, GROUPS).map(({ group, label, numbers: [n, ...others] }) => {
      const button = element("button", label);
      button.type = "button";
      button.title = "Show these alone, or all again";
      button.ariaPressed = String(this.chosen?.group === group);
      button.addEventListener("click", () => this.choose(this.chosen?.group === group ? null : this.filterOf(group)));
      return element("tr", [element("td", button), element("td", grouped(Math.round(n)), "number"),
        ...others.map((value) => cell(isNaN(value) ? null : text(value), true))]);
    });
    $("groups").replaceChildren(element("thead", element("tr", heads)), element("tbody", lines));
    $("groups-note").textContent = [
      groups.length > GROUPS && `${GROUPS} of ${grouped(groups.length)}.`,
      this.nWithout > 0 && `Of ${counted(this.nWithout, "match")} the rows are not on this page.`,
    ].filter(Boolean).join(" ");
  }

  filterOf(group) {
    const { grouping } = this;
    return { group, text: `${grouping.name}: ${grouping.label(group)}`, test: (i) => grouping.group(i) === group };
  }
}
