// The page of explore, as one module: the scripts of reports and its own, over the elements of one root.

const MARKUP = $markup;
const STRATEGIES = $strategies;
export const STYLE = $style;

/**
 * Start the page in an element of a root, which is a document or a shadow root.  The transport has send(message),
 * receive(callback) and connected(callback).
 */
export function explore(root, place, transport) {
"use strict";
place.innerHTML = MARKUP;
$scripts
return startExploring(transport);
}

/** The widget (anywidget): the same page, with the messages of a notebook's kernel. */
export default {
  render({ model, el }) {
    const host = document.createElement("div");
    host.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take Ctrl Enter, and run the cell of the widget again
    el.append(host);
    const root = host.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    const place = document.createElement("div");
    place.id = "explorer";
    place.className = "body";
    root.append(place);
    const theme = () => {
      const { jpThemeLight } = document.body.dataset;
      if (jpThemeLight !== undefined) host.dataset.theme = jpThemeLight === "true" ? "light" : "dark";
    };
    const themes = new MutationObserver(theme);
    themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
    theme();
    const takes = new Set();
    const take = (message) => { for (const each of takes) each(message); };
    model.on("msg:custom", take);
    const close = explore(root, place, {
      send: (message) => model.send(message),
      receive: (callback) => takes.add(callback),
      connected: (callback) => callback(true),
    });
    return () => {
      close();
      themes.disconnect();
      model.off("msg:custom", take);
    };
  },
};
