
// ---- export -------------------------------------------------------------------------------------------------------

const quoted = (text) => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
const csv = (rows) => rows.map((row) => `${row.map(quoted).join(",")}\n`);

/** The listed matches as CSV, one a line, with the positions of those whose rows are all here. */
function listAsCsv(list) {
  const { data, columns, order } = list;
  return csv([
    [...columns.map((column) => column.id), "positions"],
    ...Array.from(order, (i) => [...columns.map((column) => column.plain(i)), positionsOf(data, i)]),
  ]);
}

function positionsOf(data, i) {
  const rows = data.rowsOf(i);
  return rows.length < data.size[i] ? "" : rows.map(({ row }) => data.positions[row]).join(" ");
}

/** The rows of the listed matches as CSV, one row of one match a line. */
function positionsAsCsv({ data, order }) {
  const lines = [["number", "position", "variable"]];
  for (const i of order) {
    for (const { row, role } of data.rowsOf(i)) lines.push([String(data.number(i)), String(data.positions[row]), role]);
  }
  return csv(lines);
}

/** Let the browser save texts as a file, which needs no network. */
function save(name, texts) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob(texts, { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/** Copy a text; return true if the browser allows it. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea", text);
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    return isDone;
  }
}
