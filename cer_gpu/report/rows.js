
// ---- the rows of the one that is chosen ---------------------------------------------------------------------------

/** A pane that shows one match, its rows and, on demand, the rows between. */
class Pane {
  constructor(data) {
    this.data = data;
    this.withBetween = false;
    $("between").addEventListener("click", () => {
      this.withBetween = !this.withBetween;
      this.showRows();
    });
  }

  show(i) {
    const { data } = this, { axis, held, measures } = data;
    this.i = i;
    $("chosen").hidden = false;
    $("chosen-title").textContent = `Match ${grouped(data.number(i))} of ${grouped(held.n_listed)}` + (data.standsFor ? " listed" : "");
    const positions = `${grouped(data.first[i])} to ${grouped(data.first[i] + data.span[i])}`;
    facts($("chosen-facts"), [
      ...held.keys.map((name, at) => [name, data.keyValues[data.partition[i]][at]]),
      ...(axis.kind === "position" ? [] : [["from", axis.pointText(data.from[i])], ["to", axis.pointText(data.end(i))]]),
      ["lasts", axis.lengthText(data.length[i])],
      ["positions", positions],
      ["events kept", grouped(data.size[i])],
      ...measures.map(({ name, codes, text }) => [name, text(codes[i]) ?? "NULL"]),
    ]);
    this.showRows();
    $("chosen-scroll").scrollTop = 0;
  }

  showRows() {
    const { data, i, withBetween } = this, { columns, held } = data;
    const kept = data.rowsOf(i), between = data.rowsBetween(i);
    const rows = withBetween ? [...kept, ...between].sort((a, b) => a.row - b.row) : kept;
    const hasRoles = kept.length && held.rows.role_names.length > 1;
    const head = [element("th", "position", "number"), ...(hasRoles ? [element("th", "variable")] : []),
      ...columns.map((column) => element("th", column.name, column.isText ? "" : "number"))];
    const lines = rows.map(({ row, role }) => element("tr", [
      element("td", grouped(data.positions[row]), "number"),
      ...(hasRoles ? [element("td", role ?? "", "role")] : []),
      ...columns.map(({ codes, text, isText }) => cell(text(codes[row]), !isText)),
    ], role === null ? "between" : ""));
    $("rows").replaceChildren(...(lines.length ? [element("thead", element("tr", head)), element("tbody", lines)] : []));
    const more = data.hasMoreBetween(i);
    $("between").hidden = !between.length;
    $("between").textContent = `${withBetween ? "Hide" : "Show"} ${more ? "the first " : ""}${counted(between.length, "row")} between`;
    $("between").setAttribute("aria-pressed", String(withBetween));
    $("chosen-note").textContent = [this.keptNote(kept), this.betweenNote(between, more)].filter(Boolean).join(" ");
  }

  keptNote(kept) {
    const size = this.data.size[this.i];
    if (!size) return "The query selects none of its rows.";
    if (!kept.length) return "Its rows are not on this page.";
    return kept.length < size ? `The first ${kept.length} of its ${grouped(size)} rows.` : "";
  }

  betweenNote(between, more) {
    const { between_of: of, most_between: most } = this.data.held.rows;
    if (!this.data.hasRows(this.i)) return "";
    if (!between.length) return more && !most ? "The rows between are not on this page." : "";
    if (!this.withBetween) return "";
    const which = { partition: `, of the same ${keyNoun(this.data.held.keys, 1)}`, types: ", of the types that the query names" }[of] ?? "";
    return `Dimmed: rows between that are not part of the match${which}${more ? "; there are more" : ""}.`;
  }

  hide() {
    this.i = undefined;
    $("chosen").hidden = true;
  }
}
