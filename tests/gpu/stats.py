"""Statistics of a few measurements: percentiles, medians with their spread, Jain's index."""

import random

# Resamples of a bootstrap: enough for two digits of a 95 % interval.
RESAMPLES = 2000


def percentile(values, percent):
    """Returns the value below which `percent` of the values lie, with linear interpolation."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values):
    return percentile(values, 50)


def interval(values, statistic=median, percent=95, seed=1):
    """Returns the interval of a statistic by bootstrap, from many samples that are drawn from the values."""
    chance = random.Random(seed)  # the same figures give the same interval
    seen = sorted(statistic(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return percentile(seen, (100 - percent) / 2), percentile(seen, (100 + percent) / 2)


def ratio(measured, base):
    """Returns the median of the ratios of paired measurements, with its 95 % interval."""
    if len(measured) != len(base):
        raise ValueError("pairs have two sides")
    ratios = [mine / other for mine, other in zip(measured, base)]
    low, high = interval(ratios)
    return {"median": round(median(ratios), 5), "low": round(low, 5), "high": round(high, 5), "pairs": len(ratios)}


def jain(values):
    """Returns Jain's index of a division: 1 if all have the same, 1/n if one of n has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def spread(values, digits=1):
    """Returns minimum, median, 99th percentile and maximum of some values."""
    if not values:
        return {"n": 0}
    told = {"least": min(values), "median": median(values), "p99": percentile(values, 99), "most": max(values)}
    return {"n": len(values), **{name: round(value, digits) for name, value in told.items()}}
