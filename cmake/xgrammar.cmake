# The library behind the grammar room: scripts/xgrammar.sh finds it in the cache of this machine, or builds it there once. Sanitizers do not
# see into it: one library serves every build folder of a machine.
message(STATUS "XGrammar for ${CMAKE_CXX_COMPILER}: found, or built once for this machine (some minutes)")
execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/xgrammar.sh ${CMAKE_CXX_COMPILER}
  OUTPUT_VARIABLE xgrammar_folder OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE xgrammar_result)
if(NOT xgrammar_result EQUAL 0)
  message(FATAL_ERROR "There is no XGrammar, and it could not be built (the lines above say why).")
endif()
add_library(xgrammar STATIC IMPORTED)
set_target_properties(xgrammar PROPERTIES IMPORTED_LOCATION ${xgrammar_folder}/libxgrammar.a
  IMPORTED_LINK_INTERFACE_LANGUAGES CXX INTERFACE_INCLUDE_DIRECTORIES ${xgrammar_folder}/include)
