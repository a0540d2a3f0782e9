
// ---- the matches of one query --------------------------------------------------------------------------------------

/** Call back while the pointer is dragged over a canvas, with where it began and is; and where it is let go at once. */
function dragging(canvas, began, dragged, clicked) {
  let begin = null, moved = false;
  const place = (event) => [event.offsetX, event.offsetY];
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    [begin, moved] = [{ at: place(event), view: began() }, false];
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

/**
 * Show what one query found; return the functions that end it and that show one match.  What the reader chose (search,
 * order of the list, lines of the timeline) is taken from, and left in, an object that outlasts the page.
 */
function showPage(held, factsList, told, chosenBefore = {}) {
  const gone = new AbortController();
  $("limits").append(...limitsOf(held).map((limit) => element("li", limit)));
  facts(factsList, [
    [held.n_matches === 1 ? "match" : "matches", held.found],
    ...(held.name ? [] : [[held.n_events === 1 ? "event read" : "events read", grouped(held.n_events)]]),
    ...(held.keys.length ? [[`${keyNoun(held.keys, held.n_partitions)} with a match`, grouped(held.n_partitions)]] : []),
  ]);
  if (held.n_matches === 0) {
    $("found").replaceChildren(element("section", element("p", "The query found no matches.")));
    return { close() {}, open() {} };
  }
  const data = new Held(held), { axis, labels, counts, partition, byStart } = data;
  if (!held.most_at_an_end && held.step > 1) {
    $("some").textContent = `There are too many matches for one page: it has a sample, ${grouped(data.n)} of ${held.found}, one in ` +
      `${grouped(held.step)}, spread evenly, and estimates counts over time, durations and groups from these.` +
      (held.keys.length ? ` The counts by ${keyNoun(held.keys, 1)} cover all matches.` : "");
  }
  if (held.most_at_an_end) {
    $("some").textContent = "There are too many matches to list: of those that end at the same event, at most " +
      `${grouped(held.most_at_an_end)} are listed, ${grouped(held.n_listed)} in all` +
      (held.step > 1 ? `, and one in ${grouped(held.step)} of these is on this page` : "") +
      ". They say nothing about the duration of the others. " +
      (held.n_matches === null ? "Counts below are of those listed." : `Counts over time${held.keys.length ? ` and by ${keyNoun(held.keys, 1)}` : ""} cover all matches.`);
    $("lengths-title").textContent = "Durations of the listed matches";
  }

  const timeline = new Timeline(data, $("timeline"), $("view"));
  const over = makeOver(data, $("over"));
  const find = makeSearch(data);
  const pane = new Pane(data);
  const list = new List(data, $("matches-scroll"), $("matches"), choose);
  const groups = new Groups(data, showGroup);
  let only = -1; // the one partition that is shown
  let lengths = null, group = null; // a range of lengths, and a group, that are shown alone
  let forLengths = [], bars = []; // the matches of the chart of lengths, and its bars
  let due = 0; // 1: what depends on the view is to be drawn; 2: everything

  function draw(what = 2) {
    if (!due) requestAnimationFrame(() => {
      if (gone.signal.aborted) return;
      if (due === 2) {
        over.count(timeline.shown);
        bars = drawLengths(data, forLengths, $("lengths"), $("lengths-text"), lengths);
        list.draw();
      }
      timeline.draw();
      over.draw(timeline.view);
      due = 0;
    });
    due = Math.max(due, what);
  }

  function look(view) {
    timeline.look(view);
    draw(1);
  }

  function filter() {
    const hits = find($("search").value);
    const isFiltered = Boolean(hits || lengths || group) || only >= 0;
    const base = hits || only >= 0 ? byStart.filter((i) => (!hits || hits[i]) && (only < 0 || partition[i] === only)) : byStart;
    const ofLengths = (all) => lengths ? all.filter((i) => lengths.test(data.length[i])) : all;
    // a chart and a table by which one filters keep all that they offer
    forLengths = group ? base.filter(group.test) : base;
    groups.show(ofLengths(base), group);
    const shown = ofLengths(forLengths);
    timeline.stack(shown, isFiltered);
    list.show(shown);
    $("n-found").textContent = isFiltered ? `${grouped(shown.length)} of ${counted(byStart.length, "match")}` : "";
    const filters = {
      only: only < 0 ? "" : `${held.keys.join(", ")}: ${labels[only]}`,
      "only-lengths": lengths ? `${axis.msOfLength ? "duration" : "length"}: ${lengths.text}` : "",
      "only-group": group ? group.text : "",
    };
    for (const [id, text] of Object.entries(filters)) {
      $(id).hidden = !text;
      $(id).textContent = visible(`${text} \u00d7`);
    }
    for (const [code, button] of $("partitions").querySelectorAll("button").entries()) button.ariaPressed = String(code === only);
    draw();
  }

  function showOnly(code) {
    only = only === code ? -1 : code;
    filter();
  }

  function showLengths(range) {
    lengths = lengths?.text === range?.text ? null : range;
    filter();
  }

  function showGroup(filtered) {
    group = filtered;
    filter();
  }

  /** Show the bar before or behind the one that is shown alone. */
  function stepLengths(by) {
    const one = bars.findIndex((range) => range && range.text === lengths?.text);
    const begin = one < 0 ? (by > 0 ? 0 : bars.length - 1) : one + by;
    for (let at = begin; at >= 0 && at < bars.length; at += by) if (bars[at]) return showLengths(bars[at]);
  }

  function choose(i) {
    const isMoved = $("chosen").hidden;
    pane.show(i);
    $("found").classList.add("open");
    mark(i);
    timeline.reveal(i);
    draw(isMoved ? 2 : 1);
  }

  function closePane() {
    if ($("chosen").hidden) return;
    pane.hide();
    $("found").classList.remove("open");
    mark(-1);
    draw();
  }

  function mark(i) {
    timeline.chosen = i;
    list.mark(i);
    told(i < 0 ? null : data.number(i));
  }

  /** Show the match of a number, or the one on the page before it. */
  function open(number) {
    if (!(number >= 1 && number <= held.n_listed)) return;
    const i = data.at(number) ?? Math.floor((number - 1) / held.step);
    choose(i);
    if (data.number(i) !== number) $("chosen-note").prepend(`Match ${grouped(number)} is not on this page; this is one near it. `);
  }

  function showPartitions() {
    if (!labels.length) $("most").hidden = true;
    $("most-title").textContent = visible(`${upperFirst(keyNoun(held.keys, 2))} with the most matches`);
    $("partitions").append(...labels.slice(0, 10).map((label, code) => {
      const button = element("button", [element("span", label), element("span", grouped(counts[code]))]);
      button.type = "button";
      button.title = "Show this one alone, or all again";
      button.style.setProperty("--share", counts[code] / counts[0]);
      button.addEventListener("click", () => showOnly(code));
      return element("li", [button]);
    }));
  }

  const tip = element("div");
  tip.id = "tip";
  tip.hidden = true;
  $("page").append(tip);

  function point(event) {
    const i = event.buttons ? -1 : timeline.pick(event.offsetX, event.offsetY);
    tip.hidden = i < 0;
    $("timeline").style.cursor = i < 0 ? "grab" : "pointer";
    if (i < 0) return;
    tip.textContent = visible([
      ...(labels.length ? [labels[partition[i]]] : []),
      `${axis.pointText(data.from[i])} to ${axis.pointText(data.end(i))}`,
      `${axis.lengthText(data.length[i])}, ${counted(data.size[i], "event")}`,
    ].join("\n"));
    tip.style.left = `${Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 18}px`;
  }

  const viewed = () => [...timeline.view];
  const shareOf = (x) => (x - LEFT) / ($("timeline").clientWidth - LEFT);
  dragging($("timeline"), viewed, (begin, [x]) => {
    const by = (shareOf(begin.at[0]) - shareOf(x)) * (begin.view[1] - begin.view[0]);
    look(begin.view.map((value) => value + by));
  }, (x, y) => {
    const i = timeline.pick(x, y);
    if (i >= 0) choose(i);
  });
  dragging($("over"), viewed, (begin, [x]) => look([begin.at[0], x].sort((a, b) => a - b).map(over.at)), (x) => {
    const half = (timeline.view[1] - timeline.view[0]) / 2;
    look([over.at(x) - half, over.at(x) + half]);
  });
  const zoom = (factor, share) => { timeline.zoom(factor, share); draw(1); };
  const move = (share) => { timeline.move(share); draw(1); };
  const all = () => look(timeline.least);
  $("timeline").addEventListener("pointermove", point);
  $("timeline").addEventListener("pointerleave", () => { tip.hidden = true; });
  $("timeline").addEventListener("wheel", (event) => {
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) zoom(2 ** (event.deltaY / 200), shareOf(event.offsetX));
    else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) move(across / $("timeline").clientWidth);
    else return; // the page scrolls
    event.preventDefault();
  }, { passive: false });
  const keys = (target, does) => target.addEventListener("keydown", (event) => {
    if (!does[event.key] || event.target.id === "chosen-scroll" || event.ctrlKey || event.metaKey || event.altKey) return;
    does[event.key]();
    event.preventDefault();
  });
  const previous = () => list.step(-1), next = () => list.step(1);
  keys($("timeline"), {
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": all,
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), ArrowUp: previous, ArrowDown: next,
  });
  keys($("lengths"), { ArrowLeft: () => stepLengths(-1), ArrowRight: () => stepLengths(1) });
  $("lengths").addEventListener("click", (event) => {
    const range = bars[Math.floor(((event.offsetX - LEFT) / ($("lengths").clientWidth - LEFT)) * bars.length)];
    if (range) showLengths(range);
  });
  keys($("chosen"), { ArrowUp: previous, ArrowLeft: previous, ArrowDown: next, ArrowRight: next });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !(event.target.id === "search" && event.target.value)) closePane();
  }, { signal: gone.signal });
  $("in").addEventListener("click", () => zoom(0.6));
  $("out").addEventListener("click", () => zoom(1 / 0.6));
  $("all").addEventListener("click", all);
  let typing = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(typing);
    if (data.n < 20000) filter();
    else typing = setTimeout(filter, 200);
  });
  $("only").addEventListener("click", () => showOnly(only));
  $("only-lengths").addEventListener("click", () => showLengths(null));
  $("only-group").addEventListener("click", () => showGroup(null));
  $("previous").addEventListener("click", previous);
  $("next").addEventListener("click", next);
  $("close").addEventListener("click", closePane);
  $("link").addEventListener("click", async () => {
    const isDone = await copy(`${location.href.split("#")[0]}#${told.address(data.number(pane.i))}`);
    $("link").textContent = isDone ? "Copied" : "The address is above";
    setTimeout(() => { if (!gone.signal.aborted) $("link").textContent = "Copy link"; }, 2000);
  });
  const saved = (end) => `${(held.name || "matches").replace(/[^\w.-]+/g, "_")}${end}.csv`;
  $("save-list").addEventListener("click", () => save(saved(""), listAsCsv(list)));
  $("save-positions").addEventListener("click", () => save(saved("_positions"), positionsAsCsv(list)));
  $("zone").hidden = !data.zone;
  $("zone").addEventListener("click", () => {
    Axis.isUtc = !Axis.isUtc;
    showZone();
    list.rename();
    if (!$("chosen").hidden) pane.show(pane.i);
    if ($("search").value) filter();
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(), { signal: gone.signal });
  const resized = new ResizeObserver(() => draw());
  resized.observe($("page"));
  gone.signal.addEventListener("abort", () => resized.disconnect());

  function showZone() {
    $("zone").ariaPressed = String(Axis.isUtc);
    $("times").textContent = visible(axis.told);
  }

  $("by-key").hidden = labels.length < 2;
  const showLines = () => {
    timeline.isByKey = !$("by-key").hidden && Boolean(chosenBefore.isByKey);
    $("by-key").ariaPressed = String(timeline.isByKey);
  };
  $("by-key").textContent = visible(`By ${keyNoun(held.keys, 1)}`);
  $("by-key").addEventListener("click", () => {
    chosenBefore.isByKey = !chosenBefore.isByKey;
    showLines();
    filter();
  });

  function close() {
    Object.assign(chosenBefore, { search: $("search").value, sorted: list.order && list.ordering });
    gone.abort();
  }

  showZone();
  showPartitions();
  showLines();
  $("search").value = chosenBefore.search ?? "";
  list.ordering = chosenBefore.sorted ?? list.ordering;
  filter();
  return { close, open };
}
