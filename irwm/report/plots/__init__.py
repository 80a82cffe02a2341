"""The figures of pages and reports, as plotly figures. None of them knows a page or a report.

theme         one look: colours, fonts, lines
summaries     the few numbers of a reading that a figure needs
detection     ranks by position, ranks in order, and what chance gives
similarities  how alike the rows of suspect and original are
decoys        what wrong keys read, beside the key examined
ranking       every recipient's score, by rank
lab           what attacks cost, against what they left of the mark
"""
