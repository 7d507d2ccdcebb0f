# Sourced on the GPU machine, in the root of the copied checkout: keeps and unpacks the parts that came with this call,
# and finds what earlier calls left in $GPU. The machine loses all of it when it is given back.
export GPU=${GPU:-/tmp/movlr-gpu}
mkdir -p "$GPU"
for part in .gpukit/parts/*; do [ -e "$part" ] && mv -f "$part" "$GPU/"; done
cp -r movlr_jax benchmarks conf prompts assets tests pyproject.toml README.md "$GPU/"
unpack() { # the machine may lack xz; fails where more of an archive comes with the next call
  python3 -c 'import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall(sys.argv[1], filter="tar")' "$GPU"
}
for name in base models kernels warp film gl; do
  ls "$GPU/$name".tar.xz* > /dev/null 2>&1 || continue
  cat "$GPU/$name".tar.xz* | unpack 2> /dev/null && rm "$GPU/$name".tar.xz*
done
export PYTHONUNBUFFERED=1 PYTHONPATH=$GPU/site:$GPU:$GPU/benchmarks MENAGERIE_ROOT=$GPU WARP_CACHE_PATH=$GPU/kernels
export JAX_COMPILATION_CACHE_DIR=$GPU/compiled JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=2
if [ -d "$GPU/gl" ] && ! ldconfig -p | grep -q libEGL.so.1; then
  for deb in "$GPU"/gl/*.deb; do dpkg -x "$deb" /; done
  ldconfig
fi
vendor=/usr/local/nvidia/share/glvnd/egl_vendor.d/10_nvidia.json
[ -e $vendor ] && export __EGL_VENDOR_LIBRARY_FILENAMES=$vendor
# the sandbox starts python -I, which reads no PYTHONPATH, but a .pth file
purelib=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
printf '%s\n%s\n' "$GPU/site" "$GPU" > "$purelib/movlr_gpu.pth" || echo "no .pth file can be written: sandbox=process fails"
cd "$GPU" || return
