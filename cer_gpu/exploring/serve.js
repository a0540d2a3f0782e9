// The page over HTTP: messages to the session by POST, and from it as lines of JSON.  The token of the address is part
// of every request.

const token = new URLSearchParams(location.search).get("token");
const headers = { "X-Token": token };
const { explore } = await import(`./explore.js?token=${encodeURIComponent(token)}`);

let page = "", take = () => {}, setConnected = () => {};

const transport = {
  send: (message) => fetch(`message?page=${page}`, { method: "POST", headers, body: JSON.stringify(message) }).catch(() => {}),
  receive: (callback) => { take = callback; },
  connected: (callback) => { setConnected = callback; },
};

/** Hand a message to the page; an error of the page is shown in the console, and ends no stream. */
function deliver(message) {
  try {
    take(message);
  } catch (error) {
    reportError(error);
  }
}

async function connect() {
  page = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const answer = await fetch(`stream?page=${page}`, { headers });
  if (!answer.ok) throw new Error(String(answer.status));
  setConnected(true);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", part; !(part = await reader.read()).done;) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) deliver(JSON.parse(line));
  }
}

explore(document, document.getElementById("explorer"), transport);
for (;;) {
  try {
    await connect();
  } catch {
    // the server has gone
  }
  setConnected(false);
  await new Promise((done) => { setTimeout(done, 2000); });
}
