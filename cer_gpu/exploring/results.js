
// ---- results besides the matches: the funnel, rows of MATCH_RECOGNIZE, rules ----------------------------------------

const STOPS = { window: "window passed", barred: "barred by an absence", end: "end of the events", complete: "complete" };
const share = (part) => part === null ? "" : part > 0 && part < 0.001 ? "< 0.1%" : `${+(100 * part).toFixed(1)}%`;

class Funnel {
  constructor() {
    this.ofKeys = true;
    $("funnel-keys").addEventListener("click", () => this.choose(true));
    $("funnel-starts").addEventListener("click", () => this.choose(false));
  }

  choose(ofKeys) {
    this.ofKeys = ofKeys;
    this.draw();
  }

  /** Show the funnel of an answer, or nothing: the query has none. */
  show(part) {
    this.part = part;
    $("funnel-of").hidden = !part?.starts || part.starts.length < 2;
    if (!$("funnel-of").hidden) this.draw();
  }

  draw() {
    const { keys, starts, names } = this.part, ofKeys = this.ofKeys && keys !== null;
    const steps = ofKeys ? keys : starts, most = steps[0]?.n ?? 0;
    $("funnel-counts").hidden = keys === null;
    if (keys !== null) $("funnel-keys").textContent = visible(upperFirst(keyNoun(names, 2)));
    $("funnel-keys").ariaPressed = String(ofKeys);
    $("funnel-starts").ariaPressed = String(!ofKeys);
    const noun = ofKeys ? keyNoun(names, 2) : "starts";
    const heads = ["step", "", noun, "of previous", "of first", "median from start", "what stopped the others"];
    const head = element("tr", heads.map((text, at) => element("th", text, at > 1 && at < 6 ? "number" : "")));
    const rows = steps.map(({ name, n, of_previous: ofPrevious, of_first: ofFirst, median, stopped }, k) => {
      const bar = element("div", "", "share");
      bar.style.setProperty("--share", most ? n / most : 0);
      const reasons = Object.entries(stopped).filter(([stop]) => stop !== "complete").map(([stop, count]) => `${grouped(count)} ${STOPS[stop] ?? stop}`);
      return element("tr", [
        element("td", `${k + 1}. ${name}`), element("td", element("div", bar, "track"), "drawn"), element("td", grouped(n), "number"),
        element("td", share(ofPrevious), "number"), element("td", share(ofFirst), "number"), element("td", median, "number"),
        element("td", reasons.join(", "), "near"),
      ]);
    });
    $("funnel").replaceChildren(element("thead", head), element("tbody", rows));
  }
}

/** The types of the events, columns that may be keys, and the time span; a click on a type hands on its name. */
function showOverview({ types, n_types: nTypes, columns, span, sample }, choose) {
  const most = Math.max(1, ...types.map(([, , n]) => n));
  $("overview-sample").textContent = visible([sample, span && (span[0] === span[1] ? `at ${span[0]}` : `from ${span[0]} to ${span[1]}`)].filter(Boolean).join(", "));
  const head = (names) => element("thead", element("tr", names.map(([name, kind = ""]) => element("th", name, kind))));
  $("overview-types").replaceChildren(...(types.length ? [head([["type"], ["events", "number"], [""]]), element("tbody", types.map(([value, name, n]) => {
    const button = element("button", value || "(empty)"), bar = element("div", "", "share");
    button.type = "button";
    button.addEventListener("click", () => choose(name));
    bar.style.setProperty("--share", n / most);
    return element("tr", [element("td", button), element("td", grouped(n), "number"), element("td", bar, "wide")]);
  }))] : []));
  $("overview-more").textContent = nTypes > types.length ? `The ${types.length} most frequent of ${grouped(nTypes)} types.` : "";
  $("overview-columns").replaceChildren(...(columns.length ? [head([["column"], ["values", "number"], ["the most frequent"]]), element("tbody", columns.map(({ name, n, values }) =>
    element("tr", [element("td", name), element("td", grouped(n), "number"), element("td", values.map(([value, count]) => `${value} (${grouped(count)})`).join(", "), "near")])))] : []));
  $("overview").hidden = !types.length && !columns.length && !span;
}

function showTable(part) {
  $("table-of").hidden = !part;
  if (!part) return;
  $("table").replaceChildren(element("thead", element("tr", part.names.map((name) => element("th", name)))),
    element("tbody", part.rows.map((row) => element("tr", row.map((value) => cell(value))))));
}

/** The table of rules, of which one is edited. */
class Rules {
  constructor(choose) {
    Object.assign(this, { choose, rules: [], shown: null, counts: null, near: {}, wrong: {} });
  }

  show(rules) {
    this.rules = rules;
    $("rules-of").hidden = !rules.length;
    this.draw();
  }

  take({ counts, near, wrong }) {
    Object.assign(this, { counts, near, wrong });
    this.draw();
  }

  mark(name) {
    this.shown = name;
    this.draw();
  }

  draw() {
    if (!this.rules.length) return;
    const { counts, near, wrong } = this;
    const rank = ({ name }) => counts?.[name] ?? -1, far = ({ name }) => near[name] ? near[name].step / near[name].of : -1;
    const order = counts === null ? this.rules : [...this.rules].sort((a, b) => rank(b) - rank(a) || far(b) - far(a));
    const hasLevels = this.rules.some(({ level }) => level);
    const most = counts === null ? 1 : Math.max(1, ...Object.values(counts));
    const heads = ["rule", ...(hasLevels ? ["level"] : []), "matches", "", ""];
    const lines = order.map(({ name, level }) => {
      const button = element("button", name);
      button.type = "button";
      button.addEventListener("click", () => this.choose(name));
      const n = counts?.[name], bar = element("div", "", "share");
      bar.style.setProperty("--share", n ? Math.max(0.01, n / most) : 0);
      const row = element("tr", [
        element("td", button), ...(hasLevels ? [element("td", level ?? "", "level")] : []),
        element("td", wrong[name] !== undefined ? "error" : n === undefined ? "" : grouped(n), "number"),
        element("td", bar, "wide"), element("td", this.farthest(name), "near"),
      ]);
      row.ariaCurrent = name === this.shown ? "true" : null;
      return row;
    });
    $("rules").replaceChildren(element("thead", element("tr", heads.map((text) => element("th", text, text === "matches" ? "number" : "")))), element("tbody", lines));
    const n = Object.keys(wrong).length;
    $("rules-wrong").textContent = n ? `${counted(n, "rule")} cannot be evaluated over these events.` : "";
  }

  /** What is told of a rule without matches: how far its starts got, or its error. */
  farthest(name) {
    if (this.wrong[name] !== undefined) return this.wrong[name].split("\n")[0];
    const near = this.near[name];
    if (!near) return "";
    if (near.condition !== undefined) {
      const values = near.values.map(([column, value]) => `${column} is ${value ?? "NULL"}`).join(", ");
      return `near miss: ${near.is_limited ? "at least " : ""}${counted(near.n, "event")} ${near.n === 1 ? "satisfies" : "satisfy"} all but ${near.condition}` +
        (values ? ` (in the first, ${values})` : "") + (near.others ? `, and others all but another condition` : "");
    }
    const stopped = Object.entries(near.stopped).sort((a, b) => b[1] - a[1])[0];
    return `near miss: ${counted(near.n, "start")} reached step ${near.step} of ${near.of} (${near.name})` +
      (stopped && near.step < near.of ? `, then ${STOPS[stopped[0]] ?? stopped[0]}` : "");
  }
}
