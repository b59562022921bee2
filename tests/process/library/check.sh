#!/usr/bin/env bash
# check.sh STEP SOURCE BUILD: one step of the library's tests; see CMakeLists.txt. Exit 77: skipped.
set -euo pipefail
step=$1 source=$2 work=$3/tests/process/library/work
mkdir -p "$work"
cd "$work"
export CMAKE_BUILD_PARALLEL_LEVEL=2

# configure FROM TO [cmake options]: with what the project itself is built with.
configure() {
  local from=$1 to=$2; shift 2
  rm -rf "$to"
  cmake -S "$from" -B "$to" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" "$@"
}

# expect TEXT COMMAND...: the command succeeds within 60 s and prints just that line.
expect() {
  local wanted=$1 said; shift
  said=$(timeout 60 "$@") || { echo "failed with exit code $?: $*"; exit 1; }
  [ "$said" = "$wanted" ] || { printf '%s\nprinted  %s\nand not  %s\n' "$*" "$said" "$wanted"; exit 1; }
}

case $step in
  installed_examples_build)
    rm -rf prefix
    cmake --install "$3" --component runtime_dev --prefix "$PWD/prefix" >install.log
    mv prefix elsewhere-$$ && mv elsewhere-$$ prefix  # the package holds no absolute path of its own
    if grep -rlE '#include "(runtime|parallel)/' prefix/include; then
      echo "the headers above name the source tree's folders"; exit 1
    fi
    configure prefix/share/troupe/examples examples -DCMAKE_PREFIX_PATH="$PWD/prefix"
    cmake --build examples
    ;;
  examples_run_on_this_machine)
    expect "1 counter counted to 1000" examples/counter
    expect "y = 3.00 a -2.00 b +1.00 after 300 steps" examples/parameter_server
    expect "130000 words: 30000 the, 20000 fox, 20000 river" examples/word_count
    expect "1000 pages with 41636 words, 1 crash survived" examples/pipeline
    expect "136000000 in 1000000 places" examples/tree_sum
    expect "136000000 in 1000000 places" examples/tree_sum --crash
    for program in counter parameter_server word_count tree_sum pipeline; do
      timeout 10 examples/$program --help | grep -q -- --hosts
      if timeout 10 examples/$program --nonsense >/dev/null; then echo "$program takes --nonsense"; exit 1; fi
    done
    ;;
  examples_run_on_four_hosts)
    for program in /usr/sbin/sshd /usr/bin/ssh /usr/bin/unshare /sbin/ip; do
      [ "$(id -u)" -eq 0 ] && [ -x $program ] || { echo "skipped: wants root and $program"; exit 77; }
    done
    over=("$source/tests/support/hosts/with-hosts" 4)
    expect "4 counters counted to 4000" "${over[@]}" examples/counter --hosts h1,h2,h3,h4
    expect "y = 3.00 a -2.00 b +1.00 after 300 steps" "${over[@]}" examples/parameter_server --hosts h1,h2,h3,h4
    expect "130000 words: 30000 the, 20000 fox, 20000 river" "${over[@]}" examples/word_count --hosts h1,h2,h3,h4
    expect "1000 pages with 41636 words, 1 crash survived" "${over[@]}" examples/pipeline --hosts h1,h2,h3,h4
    expect "136000000 in 1000000 places" "${over[@]}" examples/tree_sum --hosts h1,h2,h3,h4
    ;;
  a_project_adds_this_one)
    configure "$source/tests/process/library/user" user -DTROUPE="$source" -DFETCHCONTENT_FULLY_DISCONNECTED=ON
    cmake --build user --target user
    if ls user/_deps/troupe-build/models 2>/dev/null; then echo "the engine came along"; exit 1; fi
    expect "named after its class: shop::Till holds 42" user/user
    ;;
  a_project_has_this_one_in_a_subdirectory)
    configure "$source/tests/process/library/subdirectory" subdirectory -DTROUPE="$source"
    cmake --build subdirectory --target counter
    expect "1 counter counted to 1000" subdirectory/examples/counter
    ;;
  *) echo "unknown step $step"; exit 2 ;;
esac
