"""What every room stands on and no array library is needed for.

==============  =======================================================================================================
`checks`        checks of arguments that are no arrays; those of arrays are in `stepwell.arrays.checks`
`files`         reading regular files only, writing in one step; `temporary`: files that a kill leaves behind
`array_files`   arrays in npy and npz files
`checkpoints`   arrays and plain values in one file, with a checksum
`status`        how a solver ended: the base of all statuses
`threads`       how many threads solvers use; objects that take one at a time
`json_text`     records as JSON
`machine`       processor, system and versions; `memory`: how much of it is free
`pyplot`        matplotlib, where it is installed; `progress`: a bar for ``progress=True``; `logs`: the logger
`typing`        types of what the public functions take
==============  =======================================================================================================
"""
