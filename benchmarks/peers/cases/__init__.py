"""What is measured. `catalog` lists the cases; the other modules hold what each of them does."""
