"""What llama-server's own clients ask for; editors that complete code know no other API."""
