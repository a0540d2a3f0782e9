// Starts the language server, `cer-gpu lsp`, for files of CEQL.
const { workspace, window } = require("vscode");

let client;

async function activate() {
  let LanguageClient;
  try {
    ({ LanguageClient } = require("vscode-languageclient/node"));
  } catch {
    return; // colours alone: `npm install` in this folder brings the client
  }
  const [command, ...args] = workspace.getConfiguration("ceql").get("command");
  const folder = workspace.workspaceFolders?.[0]?.uri.fsPath;
  const server = { command, args, options: { cwd: folder } };
  client = new LanguageClient("ceql", "CEQL", server, { documentSelector: [{ language: "ceql" }] });
  try {
    await client.start();
  } catch (error) {
    window.showWarningMessage(`${command} ${args.join(" ")} did not start: ${error.message}. pip install "cer-gpu[lsp]"`);
  }
}

async function deactivate() {
  await client?.stop();
}

module.exports = { activate, deactivate };
