"""``cer-gpu run --follow``: queries over files that appear in a folder."""
