"""Keywords of JSON schemas that no grammar holds, said with those that one holds."""
