"""What streaming queries have done and how far behind they are: for logs, tools and people."""
