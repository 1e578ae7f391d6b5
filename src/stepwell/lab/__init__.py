"""What shows and proves: test problems, runs of them, studies of the papers, the tour. No solver imports it.

==============  =======================================================================================================
`problems`      functions to minimise, written once for every array library; public as ``stepwell.problems``
`solve`         `stepwell solve`: one run of a test problem, its history, tables and picture
`studies`       tables and figures of the papers, beside ours: `stepwell study`
`tour`          every solver at work, shown in one page: `stepwell tour`
`html`          that page: text, charts and pictures without matplotlib
==============  =======================================================================================================
"""
