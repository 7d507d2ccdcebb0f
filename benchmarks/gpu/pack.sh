#!/usr/bin/env bash
# Packs what the benchmarks need for a GPU machine that has Python 3.12 and JAX with CUDA, but no network and none of
# the other packages. Run it in the root of the checkout; README.md says what to do with the parts.
#   PY=python3.12 MODELS=FOLDER/WITH/ms_human_700 KERNELS=kernels.tar.xz bash benchmarks/gpu/pack.sh
set -euo pipefail
PY=${PY:-python3.12} MODELS=${MODELS:-../shared/models} KERNELS=${KERNELS:-../shared/gpu/kernels.tar.xz}
work=${WORK:-/tmp/movlr-gpu} out=$PWD/.gpukit/parts
part=26214400 # bytes of the first part of Warp, which travels with all the rest; the second has 53 MiB
mkdir -p "$work" "$out"

packages="mujoco==3.17.0 mujoco-mjx==3.17.0 trimesh==5.2.0 glfw==2.11.0 pyopengl==3.1.10 hydra-core==1.3.8
  omegaconf==2.3.1 antlr4-python3-runtime==4.9.3 myo-sim==0.2.4 brax==0.14.2 jaxopt==0.8.5 ml-collections==1.1.0
  tensorboardX==2.6.5 flask==3.1.3 flask-cors==6.0.5 itsdangerous blinker fonttools kiwisolver mediapy
  fast-simplification==0.2.0"
films="imageio-ffmpeg==0.6.0 ipython==9.18.1 ipython-pygments-lexers traitlets matplotlib-inline jedi parso pexpect
  ptyprocess prompt_toolkit wcwidth pygments stack_data executing asttokens pure_eval psutil" # ffmpeg; mediapy's IPython
warp=warp-lang==1.18.0 # what mujoco-mjx 3.17.0 asks for

install() { [ -d "$work/$1/site" ] || "$PY" -m pip install -q --no-deps --no-compile --target "$work/$1/site" "${@:2}"; }
pack() { # NAME FOLDER THING: FOLDER/THING becomes NAME.tar.xz, in parts if it is large
  rm -f "$out/$1".tar.xz*
  tar -C "$2" --owner=0 --group=0 --sort=name --mtime=@0 -cf - "$3" | nice xz -T1 -6 > "$work/$1.tar.xz"
  if [ "$(stat -c %s "$work/$1.tar.xz")" -gt $part ]; then
    head -c $part "$work/$1.tar.xz" > "$out/$1.tar.xz.00" && tail -c +$((part + 1)) "$work/$1.tar.xz" > "$out/$1.tar.xz.01"
  else mv "$work/$1.tar.xz" "$out/$1.tar.xz"; fi
}

# shellcheck disable=SC2086
install base $packages
install warp "$warp"
# shellcheck disable=SC2086
install film $films
site=$work/base/site # without what no benchmark reads
rm -rf "$site"/mujoco/{experimental,include,plugin} "$site"/mujoco/_render_filament*.so "$site"/bin "$site"/OpenGL/DLLS
find "$site/mujoco/mjx/test_data" -mindepth 1 -maxdepth 1 ! -name humanoid -exec rm -rf {} +
rm -f "$site"/mujoco/mjx/test_data/humanoid/*.png "$site"/myo_sim/models/meshes/osl_*
rm -rf "$work"/warp/site/warp/{examples,tests} "$work"/warp/site/bin
[ "${CLANG:-0}" = 1 ] || rm -f "$work/warp/site/warp/bin/warp-clang.so" # Warp's compiler for CPUs
pack base "$work/base" site
pack warp "$work/warp" site
pack film "$work/film" site
pack models "$MODELS" ms_human_700
if [ -f "$KERNELS" ]; then # Warp's kernels, compiled beforehand
  mkdir -p "$work/kernels" && tar -C "$work/kernels" -xJf "$KERNELS"
  (cd "$work/kernels" && find . -type f ! -name '*.cubin' ! -name '*.meta' -delete)
  pack kernels "$work" kernels
fi
if command -v apt-get > /dev/null; then # OpenGL's loaders, for films
  mkdir -p "$work/gl" && (cd "$work/gl" && apt-get download -qq libegl1 libglvnd0 libopengl0 libgl1 libglx0) || true
  ls "$work"/gl/*.deb > /dev/null 2>&1 && pack gl "$work" gl
fi
du -h "$out"/*
