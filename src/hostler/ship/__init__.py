"""How Hostler is shipped: what of the chart and the docs is made from tables. Never part of the operator."""
