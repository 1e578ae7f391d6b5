"""Files as people have them: one room for every format that the applications read or write.

| file | what it holds |
|---|---|
| `packages.py` | which package a format needs, and what to do with DICOM |
| `named.py` | `open_named`: arrays by name, of npy, npz, MATLAB, HDF5 or text; `choose_array`: which one is meant |
| `matlab.py`, `hdf5.py` | MATLAB 5 and 7.3; HDF5 files without what lies outside them |
| `tables.py` | text with numbers: commas, semicolons, tabs or spaces, with a header line or without; CSV written |
| `envi.py`, `raster.py` | images with a georeference: ENVI headers; GeoTIFF and others by rasterio |
| `nifti.py` | NIfTI maps in the space of an image, and whether two images lie in one space |
| `tiff.py` | stacks of pages |
| `points.py` | points on the earth: GeoPackage |
"""
