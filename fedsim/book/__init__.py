"""The book of results: a page for each table and figure of the papers, ours beside theirs, and an overview of claims."""
