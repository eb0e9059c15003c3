"""The output of `plan` for one policy: rows of counts, a legend, a forecast, and the names of due objects."""
