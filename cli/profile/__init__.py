"""What `modelsup profile` does: measure, recommend, report.

`measure` and `pool` act; `recommend`, `report` and `page` turn numbers into words and pictures.
"""
