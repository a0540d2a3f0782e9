
// ---- one query ----------------------------------------------------------------------------------------------------

const LINES = 14; // of a query, before it is cut

function showQuery(held) {
  $("query").append(...highlighted(held.query.trim(), held.strategies));
  $("words").append(held.words.join("\n"));
  $("notes").append(...held.notes.map((note) => element("li", note)));
  const cutTexts = () => { for (const pre of [$("query"), $("words")]) cut(pre, pre.nextElementSibling); };
  $("details").open = !matchMedia("(max-width: 40rem)").matches;
  if ($("details").open) cutTexts();
  else $("details").addEventListener("toggle", cutTexts, { once: true });
}

/** Cut a text of many lines, with a button that shows all. */
function cut(pre, button) {
  const lines = Math.round(pre.scrollHeight / parseFloat(getComputedStyle(pre).lineHeight));
  button.hidden = lines <= LINES + 2;
  if (button.hidden) return;
  const show = (isCut) => {
    pre.style.maxHeight = isCut ? `${LINES}lh` : "";
    pre.classList.toggle("cut", isCut);
    button.textContent = isCut ? `Show all ${grouped(lines)} lines` : "Show fewer lines";
    button.ariaExpanded = String(!isCut);
  };
  button.addEventListener("click", () => show(!pre.classList.contains("cut")));
  show(true);
}

// ---- the queries, and the address of one match ------------------------------------------------------------

(() => {
  const { about, counts_keys: countsKeys, pages } = JSON.parse($("held").textContent);
  const isSet = pages.length > 1;
  let page = { close() {}, open() {} }, shown = -1, telling = 0;

  const asked = () => new URLSearchParams(location.hash.slice(1));

  /** Put the address of what is shown into the address bar, not too often. */
  function told(number) {
    clearTimeout(telling);
    telling = setTimeout(() => {
      try {
        history.replaceState(null, "", `#${told.address(number)}`);
      } catch {
        // a page within another may have no address of its own
      }
    }, 200);
  }

  told.address = (number) => new URLSearchParams([
    ...(isSet ? [["query", pages[shown].name]] : []),
    ...(number === null ? [] : [["match", number]]),
  ]).toString();

  function open() {
    const named = pages.findIndex((held) => held.name === asked().get("query"));
    const at = named < 0 ? Math.max(0, pages.findIndex((held) => held.n_matches !== 0)) : named;
    if (at !== shown) show(at);
    if (asked().has("match")) page.open(Number(asked().get("match")));
  }

  function show(at) {
    page.close();
    shown = at;
    $("page").replaceChildren($("page-of-one").content.cloneNode(true));
    if (isSet) {
      $("name").textContent = visible(pages[at].name);
      $("of-query").hidden = false;
      for (const [i, row] of [...$("list").tBodies[0].rows].entries()) row.ariaCurrent = i === at ? "true" : null;
    }
    showQuery(pages[at]);
    page = showPage(pages[at], $(isSet ? "own-facts" : "facts"), told);
    // beside the list there is room for one, of which the address says nothing
    if (!asked().has("match") && matchMedia("(min-width: 87.5rem)").matches) page.open(1);
    clearTimeout(telling);
  }

  const files = Object.entries(about).filter(([, paths]) => paths.length);
  $("about").hidden = !files.length;
  facts($("files"), files.map(([what, paths]) => [what, paths.join("\n")]));
  if (isSet) {
    const found = pages.filter((held) => held.n_matches !== 0);
    facts($("facts"), [
      ["queries", grouped(pages.length)],
      ["found something", grouped(found.length)],
      ["events read", grouped(Math.max(...pages.map((held) => held.n_events)))],
    ]);
    const { keys } = pages[0], hasKeys = keys.length > 0 && pages.every((held) => String(held.keys) === String(keys));
    const heads = ["query", ...(hasKeys ? [keyNoun(keys, 2)] : []), "matches"].map((name, at) => element("th", name, at ? "number" : ""));
    const bars = pages.map(() => element("div", "", "share"));
    const lines = pages.map((held, at) => {
      const button = element("button", held.name);
      button.type = "button";
      button.addEventListener("click", () => { location.hash = new URLSearchParams({ query: held.name }); });
      return element("tr", [element("td", button), ...(hasKeys ? [element("td", grouped(held.n_partitions), "number")] : []),
        element("td", held.found, "number"), element("td", bars[at], "wide")]);
    });
    const compare = (byKeys) => {
      const counts = pages.map((held) => byKeys ? held.n_partitions : held.n_matches ?? 2 ** 63), most = Math.max(...counts);
      // a bar of one hundredth is the narrowest that can be seen
      bars.forEach((bar, at) => bar.style.setProperty("--share", counts[at] === 0 ? 0 : Math.max(0.01, counts[at] / most)));
      $("by-keys").ariaPressed = String(byKeys);
      $("by-matches").ariaPressed = String(!byKeys);
    };
    $("by-keys").textContent = visible(`Compare ${keyNoun(keys, 2)}`);
    $("by-keys").addEventListener("click", () => compare(true));
    $("by-matches").addEventListener("click", () => compare(false));
    $("counting").hidden = !hasKeys;
    compare(hasKeys && countsKeys);
    $("list").append(element("thead", element("tr", [...heads, element("th")])), element("tbody", lines));
    $("queries").hidden = false;
  }
  addEventListener("hashchange", open);
  open();
})();
