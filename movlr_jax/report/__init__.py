"""The report of a run: its data, views, plots and the page."""
