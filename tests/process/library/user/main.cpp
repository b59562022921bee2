#include <cstdio>

#include <troupe/troupe.hpp>

#include "runtime/base/log.hpp"

namespace shop {

class Till {
 public:
  void put(int amount) { held_ += amount; }
  int held() { return held_; }

  using Methods = troupe::Methods<&Till::put, &Till::held>;

 private:
  int held_ = 0;
};

}  // namespace shop

namespace {

troupe::Result<int> run() {
  using namespace std::chrono_literals;
  TROUPE_TRY(const auto cluster, troupe::Cluster::start({}));
  TROUPE_TRY(const auto till, cluster->spawn<shop::Till>({}).get(10s));
  till.call<&shop::Till::put>(own_log);
  return till.call<&shop::Till::held>().get(10s);
}

}  // namespace

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  const auto held = run();
  if (!held.ok()) std::fprintf(stderr, "%s\n", held.error().message.c_str());
  std::printf("named after its class: %s holds %d\n",
              std::string(troupe::actor_type_of<shop::Till>()).c_str(), held.ok() ? *held : -1);
  return held.ok() ? 0 : 1;
}
