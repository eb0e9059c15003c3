"""The output of `plan`: rows of counts, a legend, a forecast, the names of due objects, unused ones, and warnings."""
