
// ---- the page: what one types goes to the session, and its answers are shown ----------------------------------------

const N_HISTORY = 20, LATE = 150; // milliseconds after which older results are dimmed

function startExploring(transport) {
  const store = "cer_gpu explore";
  const rules = new Rules((name) => transport.send({ kind: "rule", name }));
  const funnel = new Funnel();
  const outlasting = { isByKey: true }; // what the reader chose among results outlasts each answer
  let question = 0, page = { close() {}, open() {} }, isRunning = false, sample = "", remark = "";
  let sent = null, dimming = 0, copies = {}, hello = null, began = 0, isGreeted = false, wasEmpty = null;

  const editor = new Editor({
    changed: () => {
      openOverview();
      ask("text");
    },
    run: () => ask("run"),
    complete: (text, at) => transport.send({ kind: "complete", id: question, text, at }),
  });

  /** Ask about the text as it is: over a sample, or over all events. */
  function ask(kind, isForced = false) {
    const { text } = editor, wholeKeys = $("whole-keys").checked;
    const asked = JSON.stringify([kind, text, wholeKeys]);
    if (kind === "text" && asked === sent && !isForced) return;
    sent = asked;
    began = performance.now();
    if (kind === "run") {
      if (!text.trim()) return;
      remember(text);
    }
    question++;
    setRunning(kind === "run");
    clearTimeout(dimming);
    dimming = setTimeout(() => $("results").classList.add("stale"), LATE);
    transport.send({ kind, id: question, text, whole_keys: wholeKeys });
  }

  /** Open the overview of the events where there is no query, and close it where one begins. */
  function openOverview() {
    const isEmpty = !editor.text.trim();
    if (isEmpty !== wasEmpty) $("overview").open = isEmpty;
    wasEmpty = isEmpty;
  }

  /** Write a type at the cursor; in place of nothing, begin a query with it. */
  function writeType(name) {
    const { selectionStart: from, selectionEnd: to } = $("text");
    if (!editor.text.trim()) editor.replace(`SELECT * FROM events WHERE ${name}`);
    else editor.replace(name, from, to);
    editor.close();
  }

  function setRunning(is) {
    isRunning = is;
    $("stop").disabled = !is;
    $("progress").hidden = !is;
    if (is) $("progress").removeAttribute("value");
    showRun();
  }

  /** The query can be run if there is one, without errors, and none is under way. */
  function showRun() {
    $("run").disabled = isRunning || !editor.text.trim() || $("text").getAttribute("aria-invalid") === "true";
  }

  /** Remember a query that was run, in this browser, for the next time. */
  function remember(text) {
    const before = history().filter((each) => each !== text);
    try {
      localStorage.setItem(store, JSON.stringify([text, ...before].slice(0, N_HISTORY)));
    } catch {
      // no storage here
    }
    showHistory();
  }

  function history() {
    try {
      const kept = JSON.parse(localStorage.getItem(store) ?? "[]");
      return Array.isArray(kept) ? kept.filter((each) => typeof each === "string") : [];
    } catch {
      return [];
    }
  }

  function showHistory() {
    const queries = history();
    $("history-of").hidden = !queries.length;
    const first = element("option", "");
    first.value = "";
    $("history").replaceChildren(first, ...queries.map((text, at) => {
      const option = element("option", text.replace(/\s+/g, " ").slice(0, 90));
      option.value = at;
      return option;
    }));
  }

  // ---- answers

  function told() {} // a page that changes has no addresses of matches

  function showFacts(pairs) { facts($("facts"), pairs); }

  function showState(seconds = null) {
    const parts = [sample && `over ${sample}`, seconds !== null && `in ${durationText(Math.round(1000 * seconds))}`, remark && `(${remark})`];
    $("sample").textContent = visible(parts.filter(Boolean).join(" "));
  }

  function clear() {
    page.close();
    page = { close() {}, open() {} };
    $("page").replaceChildren();
    $("notes").replaceChildren();
    funnel.show(null);
    showTable(null);
    showFacts([]);
  }

  function showMatches(held) {
    const height = $("page").offsetHeight; // the page does not jump while its contents change
    $("page").style.minHeight = `${height}px`;
    page.close();
    $("page").replaceChildren($("page-of-one").content.cloneNode(true));
    $("link").hidden = true;
    showTable(null);
    const notes = [...held.notes];
    if (held.reached_limit) notes.push(`The search ended at ${held.found} matches, which must be listed to be counted.`);
    $("notes").replaceChildren(...notes.map((note) => element("li", note)));
    page = showPage(held, $("facts"), told, outlasting);
    $("page").style.minHeight = "";
  }

  const takes = {
    hello(message) {
      hello = message;
      const name = message.names.length ? message.names[0] + (message.names.length > 1 ? ` and ${message.names.length - 1} more` : "") : "Events";
      $("events-name").textContent = visible(name);
      for (const [id, kinds] of [["type-column", /string|dictionary/], ["time-column", /timestamp|date|time|int|duration/]]) {
        const chosen = message[id.replace("-", "_")], names = message.columns.filter(([, kind]) => kinds.test(kind)).map(([name]) => name);
        const none = element("option", id === "type-column" ? "none (name of the stream)" : "none (positions)");
        none.value = "";
        const options = [...new Set([...(chosen ? [chosen] : []), ...names])].map((each) => {
          const option = element("option", message.columns.some(([column]) => column === each) ? each : `${each} (missing)`);
          option.value = each;
          return option;
        });
        $(id).replaceChildren(none, ...options);
        $(id).value = chosen ?? "";
      }
      facts($("schema-list"), message.columns.map(([column, kind]) => [kind, column]));
      rules.show(message.rules);
      if (message.rules.length) transport.send({ kind: "rules", id: question });
      if (!isGreeted && message.query && !editor.text) editor.set(message.query);
      else if (editor.text || !message.rules.length) ask("text", true);
      openOverview();
      isGreeted = true;
    },
    loading({ n_events: n, is_loaded: isLoaded }) {
      $("of-events").textContent = isLoaded ? [counted(n, "event"), ...hello.notes].join("; ") : `reading events: ${grouped(n)} so far`;
    },
    overview(message) { showOverview(message, writeType); },
    checked(message) {
      editor.show(message.problems);
      copies = message.copies;
      for (const button of $("copies").querySelectorAll("button")) {
        const { text, why_not: why } = copies[button.dataset.copy];
        button.disabled = text === null;
        button.title = visible(text ?? why);
      }
      $("why-no-copy").textContent = copies.sql.text === null && copies.python.text !== null ? visible(`No SQL: ${copies.sql.why_not}.`) : "";
      if (message.sections.length) {
        $("meaning").replaceChildren(...message.sections.flatMap(([title, lines], at) =>
          [element("h3", title), element("pre", lines.join("\n"), at ? "facts" : "")]));
      } else if (!editor.text.trim()) $("meaning").replaceChildren();
      $("meaning").classList.toggle("stale", !message.sections.length);
      showRun();
    },
    sample(message) {
      ({ sample, remark } = message);
      showState();
    },
    counted({ found: n, n_matches: nMatches, n_partitions: nKeys, keys }) {
      showFacts([[nMatches === 1 ? "match" : "matches", n], ...(keys.length ? [[`${keyNoun(keys, nKeys)} with a match`, grouped(nKeys)]] : [])]);
    },
    page({ page: held, seconds }) {
      fresh();
      $("funnel-of").classList.add("stale"); // its own part follows
      showMatches(held);
      showState(seconds);
      requestAnimationFrame(() => setTimeout(noteTime)); // after the charts are drawn
    },
    rows(message) {
      fresh();
      clear();
      showFacts([[message.n_rows === 1 ? "row" : "rows", grouped(message.n_rows) + (message.reached_limit ? " or more" : "")]]);
      showTable(message);
      showState(message.seconds);
    },
    funnel(message) {
      funnel.show(message);
      $("funnel-of").classList.remove("stale");
    },
    progress({ doing, n, of }) {
      if (of) $("progress").value = n / of;
      $("sample").textContent = `${doing}: ${grouped(n)} of ${grouped(of)} events`;
    },
    answered({ seconds, n_events: nEvents, of_rules: ofRules }) {
      if (ofRules) {
        setRunning(false);
        return;
      }
      fresh();
      setRunning(false);
      if (!nEvents && !editor.text.trim()) clear();
      else if (nEvents) showState(seconds);
    },
    stopped() {
      setRunning(false);
      fresh();
      $("sample").textContent = "stopped";
    },
    failed({ message }) {
      setRunning(false);
      fresh();
      clear();
      $("sample").textContent = visible(message);
    },
    completions(message) { editor.offer(message); },
    rules_sample({ sample: words }) { $("rules-state").textContent = visible(`over ${words}`); },
    rules(message) { rules.take(message); },
    rule({ name, query }) {
      rules.mark(name);
      editor.set(query);
      $("ask").scrollIntoView({ block: "nearest" });
    },
  };

  /** Results are those of the text that is shown. */
  function fresh() {
    clearTimeout(dimming);
    $("results").classList.remove("stale");
  }

  /** Note how long it took from the text to what is drawn of it, for measurements. */
  function noteTime() {
    const { dataset } = $("results");
    if (dataset.question === String(question)) return;
    dataset.question = question;
    dataset.first = Math.round(performance.now() - began);
  }

  const OF_ANY_QUESTION = new Set(["hello", "loading", "rule", "completions", "rules", "rules_sample"]);
  const withProblems = (message) => message.kind === "answered" && !message.of_rules;
  transport.receive((message) => {
    if (!Object.hasOwn(takes, message.kind)) return;
    if (!OF_ANY_QUESTION.has(message.kind) && message.id !== question && !(message.of_rules)) return;
    if (withProblems(message) && $("text").getAttribute("aria-invalid") === "true") {
      // a text that is wrong keeps what was found last, dimmed
      clearTimeout(dimming);
      $("results").classList.add("stale");
      setRunning(false);
      return;
    }
    takes[message.kind](message);
  });
  transport.connected((is) => {
    $("gone").hidden = is;
    if (is) transport.send({ kind: "hello" });
  });

  $("run").addEventListener("click", () => ask("run"));
  $("stop").addEventListener("click", () => transport.send({ kind: "stop", id: question }));
  $("run-rules").addEventListener("click", () => {
    setRunning(true);
    transport.send({ kind: "rules", id: question, all: true });
  });
  $("whole-keys").addEventListener("change", () => ask("text"));
  for (const id of ["type-column", "time-column"]) {
    $(id).addEventListener("change", () => transport.send({
      kind: "columns", id: question, type_column: $("type-column").value || null, time_column: $("time-column").value || null,
    }));
  }
  for (const button of $("copies").querySelectorAll("button")) {
    const name = button.textContent;
    button.disabled = true;
    button.addEventListener("click", async () => {
      button.textContent = (await copy(copies[button.dataset.copy].text)) ? "Copied" : "Not copied";
      setTimeout(() => { button.textContent = name; }, 1500);
    });
  }
  $("history").addEventListener("change", () => {
    const text = history()[$("history").value];
    if (text !== undefined) editor.set(text);
    $("history").value = "";
    $("text").focus();
  });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isRunning) $("stop").click();
  });
  showHistory();
  editor.showKeys();
  editor.fit();
  $("text").focus({ preventScroll: true });
  return () => page.close();
}
