"""A local web page where people compare motions: the page's server, what is shown next, and the votes."""
