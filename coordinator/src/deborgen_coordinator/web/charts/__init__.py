"""Charts as SVG, drawn on the server by pure functions: values in, a `Chart` out. They know no Flask and no database.

Colours, strokes and fonts are classes of `charts.css`, which follows the system's light or dark theme, so that a page
needs no inline style. Every text that comes from people is made inert and escaped (`svg.py`).
"""
