"""The figures of pages and reports, as plotly figures. None of them knows a page or a report.

theme         one look: colours, fonts, lines
summaries     the numbers of a reading that a figure needs
detection     ranks by position, ranks in order, and what chance gives
similarities  how alike the rows of suspect and original are
decoys        readings of wrong keys, compared with the key examined
ranking       every recipient's score, by rank
lab           cost of attacks to the model, against what remains of the mark
"""
