"""``cer-gpu lsp``: help for editors."""
