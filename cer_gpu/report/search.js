
// ---- search -------------------------------------------------------------------------------------------------------

/** The words of a search, in lower case; those in double quotes are one. */
const termsOf = (text) => [...text.toLowerCase().matchAll(/"([^"]*)"?|(\S+)/g)].map((found) => found[1] ?? found[2]).filter(Boolean);

/** A time as text without the offset of its zone, which all times of a column may have in common. */
const withoutOffset = (text) => text && text.replace(/(\d\d:\d\d:\d\d(?:\.\d+)?)[+-]\d\d:\d\d(?::\d\d)?$/, "$1");

/** Return which matches have all words of a text in keys, measures, values of rows, positions or times. */
function makeSearch(data) {
  const has = (texts, term) => Uint8Array.from(texts, (text) => text !== null && text.toLowerCase().includes(term));

  const hasColumn = ({ values, text, isShownAsIs }, term) => has(isShownAsIs ? values : values.map((_, code) => withoutOffset(text(code))), term);

  function rowsWith(term, position) {
    const hit = new Uint8Array(data.positions.length);
    for (const column of data.columns) {
      const { codes } = column, wanted = hasColumn(column, term);
      if (wanted.includes(1)) codes.forEach((code, row) => { hit[row] |= wanted[code]; });
    }
    if (position !== null) data.positions.forEach((value, row) => { if (value === position) hit[row] = 1; });
    return hit;
  }

  function hits(term) {
    const { n, first, span, partition, measures, axis, references } = data;
    const hit = new Uint8Array(n);
    const digits = term.replaceAll(",", "");
    const position = /^\d+$/.test(digits) ? Number(digits) : null;
    const labels = has(data.labels, term);
    if (labels.includes(1)) for (let i = 0; i < n; i++) hit[i] = labels[partition[i]];
    for (const column of measures) {
      const { codes } = column, wanted = hasColumn(column, term);
      if (wanted.includes(1)) for (let i = 0; i < n; i++) hit[i] |= wanted[codes[i]];
    }
    if (position !== null) for (let i = 0; i < n; i++) hit[i] |= first[i] === position || first[i] + span[i] === position;
    const rows = rowsWith(term, position);
    if (rows.includes(1)) {
      for (let i = 0; i < n; i++) {
        const [begin, end] = hit[i] ? [0, 0] : data._range(i, data.ends);
        for (let k = begin; k < end && !hit[i]; k++) hit[i] = rows[references[k]];
      }
    }
    if (axis.kind !== "position" && /\d/.test(term)) {
      const has = (value) => withoutOffset(axis.pointText(value)).includes(term);
      for (let i = 0; i < n; i++) hit[i] ||= has(data.from[i]) || has(data.end(i));
    }
    return hit;
  }

  let last = { text: "", isUtc: false, result: undefined }; // other filters change while the text stays
  return (text) => {
    if (text === last.text && Axis.isUtc === last.isUtc) return last.result;
    const [one, ...others] = termsOf(text).map(hits);
    const result = one && others.reduce((all, each) => all.map((value, i) => value & each[i]), one);
    last = { text, isUtc: Axis.isUtc, result };
    return result;
  };
}
