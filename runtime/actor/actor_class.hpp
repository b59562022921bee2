#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <typeinfo>

#include "runtime/base/result.hpp"

namespace troupe {

class ActorContext;
class ActorObject;

namespace actor_detail {

/// An actor class that has registered itself before main. All processes of a job run one program,
/// so each of them has the same ones.
struct ActorClass {
  using Make = Result<std::unique_ptr<ActorObject>> (*)(ActorContext& context,
                                                        std::span<const std::byte> arguments);

  /// Puts it in the program's list. Any thread; libraries that are loaded later come later.
  ActorClass(std::string_view (*name_of)(), const std::type_info& class_type, Make factory,
             const char* source_file);

  std::string_view (*name)();
  const std::type_info& type;
  Make make;
  const char* file;  ///< the source file that registered it
  const ActorClass* next = nullptr;
};

/// The class of that name; null if none has registered itself. invalid_argument names the files if
/// several have.
Result<const ActorClass*> find_class(std::string_view name);

/// invalid_argument names the first two classes that share a name, and their files.
Result<void> check_classes();

}  // namespace actor_detail
}  // namespace troupe
