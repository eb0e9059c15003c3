"""The output of `plan` and `top`: rows of counts, a forecast, the names of due objects, unused ones, comparisons."""
