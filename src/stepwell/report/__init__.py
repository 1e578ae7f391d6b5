"""Pictures and tables for people: plots (matplotlib, imported on use) and text reports."""
