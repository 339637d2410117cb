"""Pages of HTML, each one file that opens offline: what a budget buys, and the record of an experiment."""
