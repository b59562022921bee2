#include "runtime/node/ssh_start_script.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/node/node_starter.hpp"
#include "runtime/process/shell_word.hpp"

namespace troupe {
namespace {

/// For any POSIX shell. The lines are joined by blanks, since some login shells take no quoted
/// words of several lines: a statement ends with a semicolon. Arguments: agent_flag, build_flag,
/// and those of ssh_start_command.
constexpr const char* script = R"sh(
agent=$1; print_build=$2; program=$3; build=$4; folder=$5; shift 5;
say() { echo "troupe: $*"; };
die() { rm -rf "$part"; say "failed: $*"; exit 1; };
part=; mask=$(umask); umask 077;
cache=${XDG_CACHE_HOME:-$HOME/.cache}/troupe/programs; copy=$cache/$build;
libraries=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH};
is_it() { [ "$("$1" "$print_build" 2>/dev/null)" = "$build" ]; };
works() { name=$(ls "$1/bin" 2>/dev/null | grep -v "[.]so" | head -n 1);
  [ -n "$name" ] && (LD_LIBRARY_PATH=$1/lib/troupe$libraries; export LD_LIBRARY_PATH;
    is_it "$1/bin/$name"); };
start() { say ready; exec 1>&2; [ -z "$folder" ] || cd "$folder" 2>/dev/null; umask "$mask";
  exec env "$@" "$program" "$agent"; };
start_copy() { touch "$copy"; program=$copy/bin/$name;
  start "$@" "LD_LIBRARY_PATH=$copy/lib/troupe$libraries"; };
is_it "$program" && start "$@";
if [ -d "$cache" ]; then
  [ -O "$cache" ] || die "$cache belongs to somebody else";
  case $(ls -ld "$cache") in
    ?????w*|????????w*) die "others may write $cache: chmod 700 it";; esac;
  works "$copy" && start_copy "$@";
fi;
say absent; read -r bytes hash || exit 1;
[ "$bytes" = none ] && die "no program of this build at $program";
mkdir -p "$cache" && chmod 700 "$cache" || die "cannot make $cache";
host=$(uname -n);
for old in "$cache"/.part-"$host"-*; do
  [ -d "$old" ] && kill -0 "${old##*-}" 2>/dev/null || rm -rf "$old"; done;
find "$cache" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} + 2>/dev/null;
part=$cache/.part-$host-$$;
why=$(mkdir "$part" 2>&1) || die "cannot write to $cache: ${why##*: }";
why=$({ head -c "$bytes" >"$part/archive"; } 2>&1) || die "cannot write to $cache: ${why##*: }";
[ "$(sha256sum <"$part/archive" | cut -d" " -f1)" = "$hash" ] || die "the copy did not arrive whole";
why=$(tar -xf "$part/archive" -C "$part" 2>&1) || die "cannot unpack to $cache: ${why##*: }";
rm "$part/archive"; sync;
works "$part" || die "the copy does not run there:
  $(LD_LIBRARY_PATH=$part/lib/troupe$libraries "$part/bin/$name" "$print_build" 2>&1 | tail -n 1)";
if [ -e "$copy" ]; then works "$copy" || mv -T "$copy" "$part/replaced"; fi;
mv -T "$part" "$copy" 2>/dev/null || rm -rf "$part";
rm -rf "$copy/replaced";
works "$copy" || die "cannot put the copy to $copy";
start_copy "$@";
)sh";

}  // namespace

std::string ssh_start_command(const std::string& program, const std::string& build,
                              const std::string& folder,
                              const std::vector<std::string>& environment) {
  std::string text = script;
  std::ranges::replace(text, '\n', ' ');
  std::string command =
      fmt::format("exec sh -c {} troupe {} {} {} {} {}", shell_word(text), agent_flag, build_flag,
                  shell_word(program), build, shell_word(folder));
  for (const std::string& variable : environment) command += " " + shell_word(variable);
  return command;
}

}  // namespace troupe
